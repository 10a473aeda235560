"""The operator: gang controllers, gang placement and autoscaling on a Kubernetes API server.

| module | content |
|---|---|
| `mirror` | caches of the API server -> the view that controllers read |
| `writer` | calls to the API server: idempotent, guarded, with the meaning of each failure |
| `gangs` | the loop: read the view, decide, write, schedule the next pass |
| `placement` | binds pods of `schedulerName: windtunnel`, as decided by gangs |
| `fleet/` | machines for pods without a place: NodeClaims and nodes, as decided by fleet |
| `webhooks` | validation and defaults of sets, served over TLS |
| `certificates` | the certificates of the webhooks |
| `rights` | the operator's permissions on a cluster, from which the chart is generated |
| `scaling/` | the autoscaler: scales, pods and metrics in, `/scale` out |
| `received` | the parts of objects that caches keep, and that the event log leaves out |
| `program` | the process: caches, leader election, probes, metrics, logs |
"""
