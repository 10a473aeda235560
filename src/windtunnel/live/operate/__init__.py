"""The operator: gang controllers, gang placement and autoscaling on a Kubernetes API server.

| module | what |
|---|---|
| `mirror` | caches of the API server -> the view that controllers read |
| `writer` | calls of the API server: idempotent, guarded, with what a failure means |
| `gangs` | the loop: look at the view, decide, write; when to look again |
| `placement` | binds pods of `schedulerName: windtunnel`, decided by gangs |
| `fleet` | machines for pods that find no place: NodeClaims and nodes, decided by fleet |
| `webhooks` | validation and defaults of sets, served over TLS; `certificates` are minted here |
| `rights` | what the operator may do on a cluster, from which the chart is made |
| `scaling/` | the autoscaler: scales, pods and metrics in, `/scale` out |
| `redaction` | what of an object the event log leaves out |
| `program` | the process: caches, leader election, probes, metrics, logs |
"""
