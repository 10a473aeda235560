"""The simulator held to published measurements of served models, none of which it was fitted to."""
