"""The rehearsal cluster: a real API server with simulated nodes, kubelets and servers.

| module | content |
|---|---|
| `control_plane` | starts etcd, the API server and the controllers of Kubernetes |
| `kubelets` | nodes, and pods that start, become ready, crash and end, through the API alone |
| `cluster` | kinds, nodes, sets and autoscalers of a scenario as objects of the API |
| `servers` | an emulated server for the pods of each replica |
| `program` | the rehearsal: operator, gateway, traffic, faults, and their logs |
"""
