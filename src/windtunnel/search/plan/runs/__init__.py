"""How a plan's candidates are run: lengths, trials, races, bisections, confidence."""
