"""Client of a Kubernetes API server: requests, list-watch caches, Lease leader election, events.

    config      `load_config()`: address and credentials, from kubeconfig files or a service account
    resources   `Resource` names a kind; `Object` and `Meta` hold the cached part of objects
    errors      `ApiError` and its subclasses for error responses; `NoAnswer`: outcome unknown
    client      `Client`: get, find, list, watch, create, apply, patch, delete, bind, evict
    reflector   `Reflector` keeps an `ObjectCache` current, by list and watch
    cache       `ObjectCache`: objects by (namespace, name); change handlers, own writes
    leader      `LeaderElector`: one leader by a Lease, with fencing and the epoch of each term
    events      `EventRecorder` writes events.k8s.io/v1, repeated ones as series
    pacing      `Backoff` and `RequestPacer`

Decisions are separate from waiting: `ListWatch`, `Election`, `EventSeries`, `Backoff` and
`RequestPacer` do no I/O and take the time as an argument.

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
