"""Lints and renders the charts with a real Helm engine, and checks what a person would only notice after installing."""

import sys

from charting import FAILURES
from charts_agent import agent, agent_access
from charts_bundled import bundled
from charts_check import checks
from charts_control_plane import control_plane, fleet_access, webhooks
from charts_lint import lint
from charts_monitoring import monitoring
from charts_notes import words_of_charts
from charts_restore import restore
from charts_values import values_of_charts

control_plane()
bundled()
webhooks()
agent()
agent_access()
fleet_access()
values_of_charts()
lint()
checks()
monitoring()
words_of_charts()
restore()
print(f"charts: {len(FAILURES)} failed")
sys.exit(1 if FAILURES else 0)
