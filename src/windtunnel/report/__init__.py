"""Tables, HTML and files made from results."""
