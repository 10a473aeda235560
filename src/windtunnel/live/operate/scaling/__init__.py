"""The autoscaler on a Kubernetes API server.

| module | content |
|---|---|
| `caches` | the objects that request autoscaling, kinds with a scale, pods |
| `sources` | reads metrics from pods, gateways and Prometheus, within limits |
| `operator` | the loop: observe, decide, store the record, scale, report |
| `metrics` | recommendations as metrics |
"""
