"""The history of an instance: exceptions, commits, rebalances, and samples of records."""

from ks_actors.history._commits import CommitClock as CommitClock
from ks_actors.history._commits import CommitRun as CommitRun
from ks_actors.history._exceptions import Done as Done
from ks_actors.history._exceptions import ExceptionHistory as ExceptionHistory
from ks_actors.history._exceptions import ExceptionRun as ExceptionRun
from ks_actors.history._history import History as History
from ks_actors.history._rebalances import Rebalance as Rebalance
from ks_actors.history._rebalances import RebalanceHistory as RebalanceHistory
from ks_actors.history._samples import EdgeSample as EdgeSample
from ks_actors.history._samples import EdgeTaps as EdgeTaps
from ks_actors.history._samples import RecordSamples as RecordSamples
from ks_actors.history._samples import SampledRecord as SampledRecord
