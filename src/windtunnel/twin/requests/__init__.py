"""Requests of a run: lifecycle, in-flight index, gateway, prefill/decode split."""
