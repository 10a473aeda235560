"""`report.html`: one offline page that shows a run, made from the files in its folder alone."""
