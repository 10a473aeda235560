"""A simulated Kubernetes cluster: API server, scheduler, nodes with kubelets, in virtual time."""
