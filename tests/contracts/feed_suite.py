"""Contract of every ``Feed``. A subclass provides the ``harness`` fixture: a real Kafka, or a memory broker."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from math import inf

import pytest
from support.kafka.feed_harness import Cluster, FeedHarness, Recorder, numbered, until
from support.kafka.kafka_settings import settings_of

from headrace.core.model.errors import ConfigError, Fatal, Fenced
from headrace.ports import Feed, OffsetNote, TopicPartition

POLL_ENDS = 1.5
"""Seconds in which a poll that runs ends, and with it what it does not know yet. Kafka's lasts half a second."""


class FeedSuite:
    """The contract of ``headrace.ports.Feed``."""

    @pytest.fixture
    @abstractmethod
    def harness(self) -> FeedHarness:
        """The harness of the suite."""

    @pytest.fixture
    def connector(self, harness: FeedHarness) -> str:
        """The name of a connector with its own consumer group."""
        return harness.unique("sink")

    @pytest.fixture
    def topic(self, harness: FeedHarness) -> str:
        """The name of a topic."""
        return harness.unique("topic")

    async def opened(
        self, cluster: Cluster, harness: FeedHarness, connector: str, topics: str, task: int = 0
    ) -> tuple[Feed, Recorder]:
        """A feed that has its first assignment."""
        listener = Recorder()
        listener.feed = cluster.feeds.open(connector, task, settings_of({"topics": topics, **harness.config}))
        await listener.feed.start(listener)
        await until(lambda: bool(listener.assignments), "the first assignment")
        return listener.feed, listener

    def test_every_record_once_and_in_order(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A feed delivers all partitions completely, in chunks without a gap, each partition in order."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic, partitions=3)
                for partition in range(3):
                    await cluster.append(topic, numbered(2_000, partition * 10_000), partition)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) >= 6_000, "all records")
                await feed.stop()
            by_partition = [[v for v in seen.values if int(v) // 10_000 == partition] for partition in range(3)]
            assert by_partition == [numbered(2_000, partition * 10_000) for partition in range(3)]
            assert seen.ends == {TopicPartition(topic, partition): 2_000 for partition in range(3)}
            assert seen.errors == []

        asyncio.run(scenario())

    def test_what_was_not_committed_comes_again(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A restarted feed begins at the committed offset, not at the last offset that the feed read."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(100))
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 100, "all records")
                await feed.commit({TopicPartition(topic, 0): 60})
                assert await cluster.committed(f"connect-{connector}") == {TopicPartition(topic, 0): 60}
                await feed.stop()
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 40, "the uncommitted records")
                await feed.stop()
            assert seen.values == numbered(40, 60)

        asyncio.run(scenario())

    def test_a_rewind_brings_what_was_not_committed(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A rewind revokes and assigns the partitions as a rebalance does.

        Records that the listener commits when the assignment ends are not delivered again.
        """

        async def scenario() -> None:
            first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
            async with harness.cluster() as cluster:
                await cluster.create(topic, partitions=2)
                await cluster.append(topic, numbered(100))
                await cluster.append(topic, numbered(10, 900), partition=1)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 110, "all records")
                await feed.commit({first: 60})
                calls = seen.calls.count("assigned")
                feed.rewind()
                await until(lambda: len(seen.values) == 110 + 40 + 10, "the uncommitted records")
                assert seen.calls.count("assigned") == calls + 1
                assert {*seen.values[110:]} == {*numbered(40, 60), *numbered(10, 900)}
                seen.ends, seen.commits_on_revoke = {first: 100, second: 10}, True
                feed.rewind()
                await until(lambda: seen.calls.count("assigned") == calls + 2, "another assignment")
                await cluster.append(topic, [b"new"])
                await until(lambda: seen.values[-1] == b"new", "the next record")
                assert len(seen.values) == 161
                assert seen.errors == []
                await feed.stop()

        asyncio.run(scenario())

    def test_notes_go_with_the_offsets(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """Each commit carries the newest note of its partition, or else the note that the assignment began with."""

        async def scenario() -> None:
            first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
            async with harness.cluster() as cluster:
                await cluster.create(topic, partitions=2)
                feed, _ = await self.opened(cluster, harness, connector, topic)
                assert feed.committed() == dict.fromkeys((first, second), OffsetNote(0, ""))
                feed.note({first: "it's so", TopicPartition("nobody's", 0): "no"})
                await feed.commit({first: 0, second: 0})
                await feed.stop()
                feed, _ = await self.opened(cluster, harness, connector, topic)
                assert feed.committed() == {first: OffsetNote(0, "it's so"), second: OffsetNote(0, "")}
                await feed.commit({first: 0})
                await feed.stop()
                feed, _ = await self.opened(cluster, harness, connector, topic)
                assert feed.committed()[first] == OffsetNote(0, "it's so")
                feed.note({first: ""})
                await feed.commit({first: 0})
                await feed.stop()
                feed, _ = await self.opened(cluster, harness, connector, topic)
                assert feed.committed()[first] == OffsetNote(0, "")
                await feed.stop()

        asyncio.run(scenario())

    def test_a_slow_task_holds_the_feed(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """The feed begins no put while another one runs; afterwards it delivers the remaining records."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic, partitions=2)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                seen.open.clear()
                for partition in range(2):
                    await cluster.append(topic, numbered(3_000, partition * 10_000), partition)
                await until(lambda: seen.running == 1, "the first chunk")
                await asyncio.sleep(0.3)
                assert seen.calls.count("put") == 1
                seen.open.set()
                await until(lambda: len(seen.values) == 6_000, "the rest")
                await feed.stop()

        asyncio.run(scenario())

    def test_pause_and_resume(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A paused feed stays in the group and puts nothing; a resumed feed continues without a gap.

        Its lag counts all records that are not committed, read or not.
        """

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(10))
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 10, "records before the pause")
                feed.pause()
                await asyncio.sleep(0.5)
                await cluster.append(topic, numbered(10, 10))
                await until(lambda: sum(feed.lag().values()) == 20, "the lag of a paused feed")
                await feed.commit({TopicPartition(topic, 0): 10})
                await until(lambda: sum(feed.lag().values()) == 10, "the lag behind the committed offset")
                assert len(seen.values) == 10
                feed.resume()
                await until(lambda: len(seen.values) == 20, "records after the pause")
                await feed.stop()
            assert seen.calls.count("assigned") == 1
            assert seen.values == numbered(20)

        asyncio.run(scenario())

    def test_chunks_report_the_lag(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A chunk reports the lag of its partition, so that a task far behind can wait for larger batches."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(6_000))
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 6_000, "all records")
                await feed.stop()
            assert seen.behind == [6_000 - end for end in seen.chunk_ends]
            assert len(seen.behind) > 1

        asyncio.run(scenario())

    def test_when_partitions_were_caught_up(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """An empty partition is caught up, and one with records once all of them were put, not when they were read."""

        async def scenario() -> None:
            first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
            async with harness.cluster() as cluster:
                await cluster.create(topic, partitions=2)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                assert feed.last_caught_up().keys() == {first, empty}
                await until(lambda: min(feed.last_caught_up().values()) > -inf, "both ends")
                seen.open.clear()
                await cluster.append(topic, numbered(10))
                appended = time.monotonic()
                await until(lambda: feed.last_caught_up()[empty] > appended + 1.0, "the end of the empty partition")
                assert (seen.running, seen.values) == (1, [])
                assert feed.last_caught_up()[first] <= appended
                seen.open.set()
                await until(lambda: feed.last_caught_up()[first] > appended, "the end of the other one")
                assert len(seen.values) == 10
                await feed.stop()

        asyncio.run(scenario())

    def test_records_that_are_removed_before_they_are_read(
        self, harness: FeedHarness, connector: str, topic: str
    ) -> None:
        """The feed continues with the oldest available records, and their chunk reports that records were lost."""
        # One batch per fetch, so that the fetched records end before the deleted ones.
        config = {**harness.config, "consumer.override.max.partition.fetch.bytes": "1"}

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(10))
                seen = Recorder()
                feed = seen.feed = cluster.feeds.open(connector, 0, settings_of({"topics": topic, **config}))
                await feed.start(seen)
                await until(lambda: len(seen.values) == 10, "records before the pause")
                feed.pause()
                await asyncio.sleep(POLL_ENDS)
                for start in (10, 20):
                    await cluster.append(topic, numbered(10, start))
                await cluster.remove(TopicPartition(topic, 0), 25)
                feed.resume()
                await until(lambda: seen.values[-5:] == numbered(5, 25), "what is left")
                await feed.stop()
            assert not seen.gone.pop(0)
            assert any(seen.gone)

        asyncio.run(scenario())

    def test_paused_before_start(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A task that restarts in the state PAUSED joins the group and puts nothing."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(10))
                seen = Recorder()
                feed = cluster.feeds.open(connector, 0, settings_of({"topics": topic, **harness.config}))
                feed.pause()
                await feed.start(seen)
                await until(lambda: sum(feed.lag().values()) == 10, "the lag")
                assert seen.values == []
                feed.resume()
                await until(lambda: len(seen.values) == 10, "records after the pause")
                await feed.stop()

        asyncio.run(scenario())

    def test_throttled_topics_wait(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """The feed puts no records of a throttled topic while it puts others, and puts all of them afterwards."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                fast, slow = f"{topic}.fast", f"{topic}.slow"
                await cluster.create(fast)
                await cluster.create(slow)
                feed, seen = await self.opened(cluster, harness, connector, f"{fast},{slow}")
                await until(lambda: seen.topics == {fast, slow}, "both topics")
                feed.throttle({slow})
                await asyncio.sleep(POLL_ENDS)
                await cluster.append(slow, numbered(10))
                await cluster.append(fast, numbered(10, 10))
                await until(lambda: len(seen.values) == 10, "the topic that flows")
                assert seen.values == numbered(10, 10)
                feed.throttle(())
                await until(lambda: len(seen.values) == 20, "the other one")
                assert seen.values[10:] == numbered(10)
                await feed.stop()

        asyncio.run(scenario())

    def test_two_members_share_topics(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """Each topic is assigned to one member.

        Both members together receive all records, and the other member takes the topics of a member that leaves.
        """

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                names = [f"{topic}.{number}" for number in range(4)]
                for name in names:
                    await cluster.create(name, partitions=2)
                first, left = await self.opened(cluster, harness, connector, ",".join(names), 0)
                await until(lambda: len(left.topics) == 4, "one member has all")
                second, right = await self.opened(cluster, harness, connector, ",".join(names), 1)
                await until(lambda: len(left.topics) == len(right.topics) == 2, "an even share")
                assert left.topics | right.topics == set(names)
                assert len(left.assignments[-1]) == len(right.assignments[-1]) == 4
                for number, name in enumerate(names):
                    await cluster.append(name, numbered(10, number * 10), partition=number % 2)
                await until(lambda: len(left.values) + len(right.values) == 40, "all records")
                await first.commit(left.ends)
                await first.stop()
                await until(lambda: right.topics == set(names), "the leaver's topics")
                await second.stop()
            # The second member had not committed, so it receives its records again, but not those of the member that
            # left.
            assert sorted({*left.values, *right.values}) == numbered(40)
            assert not {*left.values} & {*right.values}

        asyncio.run(scenario())

    def test_revoked_may_still_commit(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A task finishes and commits records in flight at a rebalance, so the feed delivers none of them again."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(100))
                first, left = await self.opened(cluster, harness, connector, topic, 0)
                left.commits_on_revoke = True
                await until(lambda: len(left.values) == 100, "all records")
                second, right = await self.opened(cluster, harness, connector, topic, 1)
                await until(lambda: left.calls.count("assigned") == 2, "the rebalance")
                await cluster.append(topic, numbered(1, 100))
                await until(lambda: b"000100" in left.values + right.values, "the next record")
                await second.stop()
                await first.stop()
            assert sorted(left.values + right.values) == numbered(101)
            assert left.calls[:3] == ["assigned", "put", "revoked"]

        asyncio.run(scenario())

    def test_a_commit_for_another_member_is_fenced(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A commit of offsets for partitions of another member changes nothing."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                feed, _ = await self.opened(cluster, harness, connector, topic)
                with pytest.raises(Fenced):
                    await feed.commit({TopicPartition(f"{topic}.other", 0): 1})
                await feed.stop()
                with pytest.raises(Fenced):
                    await feed.commit({TopicPartition(topic, 0): 1})
                assert await cluster.committed(f"connect-{connector}") == {}

        asyncio.run(scenario())

    def test_a_failing_put_ends_the_feed(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """The feed reports the error once and puts nothing after it."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                seen.raises = Fatal("cannot go on")
                await cluster.append(topic, numbered(10))
                await until(lambda: bool(seen.errors), "the failure")
                await cluster.append(topic, numbered(10))
                await asyncio.sleep(0.3)
                await feed.stop()
            assert seen.errors == [seen.raises]
            assert seen.calls.count("put") == 1

        asyncio.run(scenario())

    def test_stop_is_final(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """Stop cancels the running put. A second stop has no effect, and the feed puts nothing afterwards."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                feed, seen = await self.opened(cluster, harness, connector, topic)
                seen.open.clear()
                await cluster.append(topic, numbered(10))
                await until(lambda: seen.running == 1, "a put in hand")
                await feed.stop()
                await feed.stop()
                seen.open.set()
                await cluster.append(topic, numbered(10))
                await asyncio.sleep(0.3)
            assert seen.values == []
            assert seen.running == 0

        asyncio.run(scenario())

    def test_new_and_deleted_topics(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """A feed with a pattern subscribes to new topics and releases deleted ones; the other topics continue."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(f"{topic}.a")
                await cluster.create(f"other.{topic}.a")
                seen = Recorder()
                pattern = {"topics.regex": f"{topic}\\..*", **harness.config}
                feed = seen.feed = cluster.feeds.open(connector, 0, settings_of(pattern))
                await feed.start(seen)
                await until(lambda: seen.topics == {f"{topic}.a"}, "the matching topic alone")
                await cluster.create(f"{topic}.b")
                await until(lambda: seen.topics == {f"{topic}.a", f"{topic}.b"}, "the new topic")
                await cluster.delete(f"{topic}.a")
                await until(lambda: seen.topics == {f"{topic}.b"}, "the deleted topic's absence")
                await cluster.append(f"{topic}.b", numbered(5))
                await until(lambda: seen.values == numbered(5), "records of the topic that is left")
                await feed.stop()
            assert seen.errors == []

        asyncio.run(scenario())

    def test_topics_that_do_not_exist_are_known_until_they_appear(
        self, harness: FeedHarness, connector: str, topic: str
    ) -> None:
        """Named topics that do not exist, and a pattern that matches no topic, are absent until a topic is created."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(f"{topic}.a")
                names = {"topics": f"{topic}.a,{topic}.b", **harness.config}
                regex = {"topics.regex": f"{topic}\\.(b|c)", **harness.config}
                named = cluster.feeds.open(connector, 0, settings_of(names))
                matched = cluster.feeds.open(f"{connector}-regex", 0, settings_of(regex))
                assert (named.absent(), matched.absent()) == (None, None)
                for feed in (named, matched):
                    listener = Recorder()
                    listener.feed = feed
                    await feed.start(listener)
                await until(lambda: named.absent() == (f"{topic}.b",), "the named topic that does not exist")
                await until(lambda: matched.absent() == (regex["topics.regex"],), "the pattern that matches no topic")
                await cluster.create(f"{topic}.b")
                await until(lambda: (named.absent(), matched.absent()) == ((), ()), "the new topic")
                await named.stop()
                await matched.stop()

        asyncio.run(scenario())

    def test_a_log_that_was_cut_is_not_continued(self, harness: FeedHarness, connector: str, topic: str) -> None:
        """The records that follow the cut are never read, whether the log is cut while the feed runs or is stopped.

        Other topics are. A log that still contains the last record before the offset is continued.
        """

        async def scenario() -> None:
            first, other = TopicPartition(topic, 0), TopicPartition(f"{topic}-other", 0)
            async with harness.cluster() as cluster:
                for each in (first, other):
                    await cluster.create(each.topic)
                for begin, end in ((0, 40), (40, 60)):
                    await cluster.append(topic, numbered(end - begin, begin))
                feed, seen = await self.opened(cluster, harness, connector, f"{topic},{other.topic}")
                await until(lambda: len(seen.values) == 60, "the first records")
                await feed.commit({first: 60, other: 0})
                await cluster.append(topic, numbered(40, 60))
                await until(lambda: len(seen.values) == 100, "all records")
                await feed.stop()

                await cluster.cut(first, 60)
                await cluster.append(topic, numbered(100, 1_000))
                feed, seen = await self.opened(cluster, harness, connector, f"{topic},{other.topic}")
                await until(lambda: len(seen.values) == 100, "the records behind the offset")
                assert (seen.values, seen.failed_topics) == (numbered(100, 1_000), [])

                await cluster.cut(first, 40)
                await cluster.append(topic, numbered(400, 2_000))
                await until(lambda: seen.failed_topics == [topic], "the failure of the topic while it is read")
                await cluster.append(other.topic, [b"other"])
                await until(lambda: seen.values[100:] == [b"other"], "a record of another topic")
                await feed.commit({other: 1})
                await feed.stop()

                feed, seen = await self.opened(cluster, harness, connector, f"{topic},{other.topic}")
                await until(lambda: seen.failed_topics == [topic], "the failure of the topic after a restart")
                await cluster.append(other.topic, [b"next"])
                await until(lambda: seen.values == [b"next"], "a record of another topic")
                assert seen.errors == []
                await feed.stop()
                assert await cluster.committed(f"connect-{connector}") == {first: 60, other: 1}

        asyncio.run(scenario())

    def test_a_topic_that_was_created_again_has_another_id(
        self, harness: FeedHarness, connector: str, topic: str
    ) -> None:
        """Kafka removes the group's offsets with a topic. While a feed reads the topic, it is reported as well."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, numbered(100))
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: len(seen.values) == 100, "all records")
                await feed.commit(seen.ends)
                former = feed.topic_ids()[topic]
                await cluster.delete(topic)
                await cluster.create(topic)
                await cluster.append(topic, numbered(300, 1_000))
                await until(
                    lambda: seen.failed_topics == [topic] or feed.topic_ids().get(topic, former) != former,
                    "the other topic",
                )
                await feed.stop()
                feed, seen = await self.opened(cluster, harness, connector, topic)
                await until(lambda: topic in feed.topic_ids(), "the topic's id")
                assert feed.topic_ids()[topic] != former
                await feed.stop()

        asyncio.run(scenario())

    def test_topics_must_be_named(self, harness: FeedHarness, connector: str) -> None:
        """A connector without topics has an invalid configuration."""

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                with pytest.raises(ConfigError, match="topics"):
                    cluster.feeds.open(connector, 0, settings_of({}))

        asyncio.run(scenario())
