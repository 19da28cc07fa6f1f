"""Proofs in the properties of a table, and what a task reports of its verifications."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.model.proof import DifferingRow, Proof, VerificationReport, stored_proof

PROOF = Proof("postgresql:123", 1_700_000_000.0, 7)


def test_a_stored_proof_is_the_one_that_was_recorded() -> None:
    """The properties are texts that any engine shows. What another program has damaged is no proof."""
    properties, removed = PROOF.properties()
    assert properties == {
        "headrace.verified.position": "postgresql:123",
        "headrace.verified.at": "2023-11-14T22:13:20Z",
        "headrace.verified.rows": "7",
    }
    assert stored_proof(properties) == PROOF
    some = replace(PROOF, not_compared=("a,b", "ö"))
    assert some.properties()[0]["headrace.verified.not.compared"] == '["a,b", "ö"]'
    assert stored_proof(some.properties()[0]) == some
    assert stored_proof({}) is None
    assert stored_proof({**properties, "headrace.verified.at": "yesterday"}) is None
    with_digest = replace(PROOF, digest="00c0ffee00c0ffee", snapshot="5903478123")
    assert stored_proof(with_digest.properties()[0]) == with_digest
    assert with_digest.properties() == (
        {**properties, "headrace.verified.digest": "00c0ffee00c0ffee", "headrace.verified.snapshot": "5903478123"},
        ["headrace.verified.not.compared"],
    )
    assert removed == [
        f"headrace.verified.{name}" for name in ("digest", "snapshot", "not.compared")
    ]  # of the proof before


def test_a_document_has_a_digest_if_one_is_known() -> None:
    """It names the commit that it is of."""
    assert "digest" not in PROOF.document()
    document = replace(PROOF, digest="00c0ffee00c0ffee", snapshot="5903478123").document()
    assert (document["digest"], document["snapshot"]) == ("00c0ffee00c0ffee", "5903478123")


def test_a_table_is_equal_only_by_its_last_verification() -> None:
    """An earlier proof keeps its age, but a difference, an error or an undecided row since then counts."""
    report = VerificationReport(60.0)
    assert report.document(0.0)["equal"] is None
    proven = replace(report, proof=PROOF, ended=PROOF.at)
    assert proven.document(PROOF.at + 5)["equal"] is True
    assert proven.document(PROOF.at + 5)["age_seconds"] == 5.0
    partial = replace(proven, proof=replace(PROOF, not_compared=("name",)), not_compared=("name",)).document(PROOF.at)
    assert (partial["not_compared"], partial["proof"]["not_compared"]) == (["name"], ["name"])
    for later in ({"differing": 1}, {"undecided": 1}, {"error": "no answer"}):
        assert replace(proven, **later).document(PROOF.at)["equal"] is False


def test_a_report_names_rows_by_their_keys() -> None:
    """The document has keys, sides and columns, and no value."""
    report = VerificationReport(60.0, differing=1, rows=(DifferingRow({"id": "3"}, "both", ("name",)),), reading=9)
    document = report.document(0.0)
    assert document["rows"] == [{"key": {"id": "3"}, "where": "both", "columns": ["name"]}]
    assert document["running"] == {"rows": 9}
