"""Convert the records of one topic with other converters than JsonConverter, then decode them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.converters.conversion import Conversion
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.envelope_events import KafkaRecord
from headrace.core.decode.record_decoder import Decoder, RecordDecoder, Sources
from headrace.core.model.catalog import Catalog

_SMALLEST_BLOCK = 100
"""The smallest number of records that is decoded as a block: fewer cost less when they are decoded one by one."""


def converting_decoder(
    topic: str,
    options: EnvelopeOptions,
    catalog: Catalog | None = None,
    conversion: Conversion | None = None,
    sources: Sources | None = None,
) -> Decoder:
    """Return the decoder of a topic; JsonConverter's documents go to ``RecordDecoder`` without a conversion."""
    decoder = RecordDecoder(topic, options, catalog, sources)
    return ConvertingDecoder(decoder, conversion) if conversion else decoder


class ConvertingDecoder:
    """Convert records, and decode them with ``decoder``: in blocks of one schema if possible, else one by one."""

    def __init__(self, decoder: RecordDecoder, conversion: Conversion) -> None:
        self._decoder = decoder
        self._conversion = conversion

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """See ``Decoder``."""
        out = Decoded()
        try:
            self._decode_part(records, 0, out)
        except Exception:  # the caller passes the same records again: their notes would be missing
            if self._decoder.envelopes is not None:
                self._decoder.envelopes.discard_notes(out.notes)
            raise
        return out

    def _decode_part(self, records: Sequence[KafkaRecord], begin: int, out: Decoded) -> None:
        """Decode records, the first of which is the chunk's ``begin``-th: as a block, else in halves, else each."""
        envelopes = self._decoder.envelopes
        in_blocks = len(records) >= _SMALLEST_BLOCK and self._conversion.reads_blocks
        decoded = None
        if in_blocks and envelopes is not None and envelopes.reads_blocks:
            block = self._conversion.block(records)
            decoded = None if block is None else envelopes.decode_block(block)
            if decoded is None and len(records) >= 2 * _SMALLEST_BLOCK:
                half = len(records) // 2
                self._decode_part(records[:half], begin, out)
                self._decode_part(records[half:], begin + half, out)
                return
        decoded = decoded or self._decode_each(records)
        decoded.errant = [replace(each, index=begin + each.index) for each in decoded.errant]
        out.add(decoded)

    def _decode_each(self, records: Sequence[KafkaRecord]) -> Decoded:
        converted = self._conversion.convert(records)
        errant = converted.errant
        if self._conversion.key is None:
            errant = [self._decoder.key_fault_first(records[each.index], each) for each in errant]
        decoded = self._decoder.decode(converted.records)
        errant += [replace(each, index=converted.indexes[each.index]) for each in decoded.errant]
        decoded.errant = sorted(errant, key=lambda each: each.index)
        return decoded
