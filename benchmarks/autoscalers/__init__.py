"""Autoscalers against each other, over shapes of traffic that each of them finds hard."""
