"""Client of a Kubernetes API server: requests, list-watch caches, Lease leader election, events.

    config      `load_config()`: address and credentials, from kubeconfig files or a service account
    resources   `Resource` names a kind; `Object` and `Meta` are what caches hold of objects
    errors      `ApiError` and its subclasses for answers; `NoAnswer`: the outcome is unknown
    client      `Client`: get, find, list, watch, create, apply, patch, delete, bind, evict
    reflector   `Reflector` keeps a `Cache` in step with the API server, by list and watch
    cache       `Cache`: objects by (namespace, name); handlers, own writes
    leader      `LeaderElector`: one leader by a Lease, with fencing and the epoch of each term
    events      `EventRecorder` writes events.k8s.io/v1, repeated ones as series
    pacing      `Backoff` and `RateLimit`

What decides is apart from what waits: `ListWatch`, `Election`, `EventSeries`, `Backoff` and
`RateLimit` have no I/O and are given the time.

A program of several controllers has one `Client`, a `Reflector` per kind, and one `LeaderElector`:

    async with open_client(load_config()) as client:
        elector = LeaderElector(client, "windtunnel", "windtunnel-operator", identity)
        writer = client.fenced(elector)       # its writes raise NotLeader after the renew deadline
        pods = Reflector(client, PODS, Pod)
        pods.cache.subscribe(lambda before, after: controller.look())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run())
            tasks.create_task(elector.run())
            await pods.synced.wait()
            await elector.led.wait()
            pods.cache.written(await writer.create(PODS, pod, Pod))
"""
