"""Exchanges machines that a cycle takes between needs: by an auction, or in pairs."""
