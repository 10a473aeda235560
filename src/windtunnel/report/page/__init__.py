"""`report.html`: one offline page about a run, made only from the files in its folder."""
