"""The autoscaler on a Kubernetes API server.

| module | what |
|---|---|
| `caches` | the objects that ask for autoscaling, kinds that have a scale, pods |
| `sources` | asks pods, gateways and Prometheus, within limits |
| `operator` | the loop: look, let decide, store the record, scale, tell |
| `metrics` | recommendations as metrics |
"""
