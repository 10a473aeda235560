"""The Endpoint Picker protocol of the Gateway API: the gateway's decisions inside Envoy."""
