"""Tables, HTML pages and files made from results."""
