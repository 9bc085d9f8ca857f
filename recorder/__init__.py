"""Recording and reading back: the one ordered stream of what happened and what was decided.

In reading order:
    format.py        the format; its docstring is the specification, with reasons
    header.py        what a reader must know before the first entry
    frames.py        bodies with a length and a chained checksum, both ways
    writer.py        the recorder: takes entries, and the thread that writes them
    entry_queue.py   … the queue, in which what finds no room leaves its place
    settling.py      … how far all is on file or counted as lost
    folder_claim.py  one process at a time records into a folder
    disk_sync.py     syncing, in a thread of its own
    segments.py      entries into segments, and gaps
    rotation.py      when a segment ends
    keyframe_demand.py
                     when a keyframe is wanted
    chunks.py        the framing of sealed segments
    index.py         where in a sealed segment something is
    sealing.py       live segments into sealed ones, and back
    sealed.py        a sealed segment's bodies
    segment_files.py a segment in either form
    incidents.py     what is worth keeping, and pins
    slo_watch.py     who waited longer for a token than was promised
    retention.py     the bounds: what may stay
    housekeeping.py  one pass of sealing and bounds, in a process of its own
    keeper.py        the thread that has it done
    fsck.py          every check there is
    repair.py        what can be read, made whole again
    vault_writer.py  token ids apart from the stream, of the kinds in vault_records.py
    encryption.py    … each record under its tenant's key
    keys.py          the keys: where they lie, who wraps them, how they are erased
    keyframes.py     where the keyframes are
    reader.py        entries in order, across segments
    request_entries.py   the entries about one request, found by the index where there is one
    frame_places.py  where frames lie in live segments, as far as this process has seen
    continuity.py    what a recording lacks
    vault.py         token ids, read back
    audit.py         who read them
    timeline.py      entries → what goes on now, spans per request, totals
    in_turn.py       entries in which a step that was planned ahead is planned in its turn
    metrics/         what it says, as Prometheus families
    spans/           what it tells of requests, as traces: for viewers and OpenTelemetry
    request_span.py  one request's life; TTFT, ITL and TPOT are defined there only
    recent_ends.py   ends that the next engine may perform again
    totals.py        counters and histograms
    histogram.py     buckets
    errors.py        what can be wrong with a recording
"""
