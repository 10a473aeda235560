"""Autoscaling policies against each other on one pool: cost, SLO attainment and regret."""
