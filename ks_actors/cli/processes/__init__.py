"""The supervisor of `ks-actors run --processes`: it starts members, and imports no app.

`python -m ks_actors.cli.processes OPTIONS ARGUMENTS…` runs it; an app becomes it by exec.
"""

from ks_actors.cli.processes._adoption import Move, adopt, plan_moves
from ks_actors.cli.processes._child import Child, ChildState
from ks_actors.cli.processes._options import Options
from ks_actors.cli.processes._supervisor import Supervisor

__all__ = ["Child", "ChildState", "Move", "Options", "Supervisor", "adopt", "plan_moves"]
