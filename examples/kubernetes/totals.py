"""Add up what each customer has paid: the program in the image.

Run: echo 'send payments ann=450' | ks-actors dev totals:app
On Kafka: KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 ks-actors run totals:app
"""

from ks_actors import App, Materialized, StreamsBuilder, StreamsConfig, Topic, Topology

PAYMENTS = Topic("payments", str, int)  # by customer, in cents
TOTALS = Topic("totals", str, int)
PARTITIONS = 4  # and so the most instances that have work: scaling.yaml says it, too


def topology() -> Topology:
    builder = StreamsBuilder()
    payments = builder.stream(PAYMENTS).group_by_key()
    totals = payments.reduce(lambda total, cents: total + cents, Materialized("totals"))
    totals.to_stream().to(TOTALS)
    return builder.build()


def app() -> App:
    """Return the app. The environment has the settings of its place; see totals.yaml."""
    config = StreamsConfig.load(application_id="totals", processing_guarantee="exactly_once_v2")
    return App(topology(), config, topics={PAYMENTS: PARTITIONS, TOTALS: PARTITIONS})
