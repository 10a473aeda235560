"""The shadow: follows a gateway's files, forecasts with the twin, measures its own error."""
