"""The three kernels of :mod:`agentkv_kernels.triton.attention`: walk over pages, join the shares, finish the mass."""

from __future__ import annotations

import triton
import triton.language as tl

from agentkv_kernels.formats import KVFormat

NO_CODES, MIXED = -1, -2
"""Besides the formats: a layer without codes, and one whose heads differ in format."""

_FP = tl.constexpr(int(KVFormat.FP))
_INT8_TOKEN = tl.constexpr(int(KVFormat.INT8_TOKEN))
_FP8_TOKEN = tl.constexpr(int(KVFormat.FP8_TOKEN))
_INT8_CHANNEL = tl.constexpr(int(KVFormat.INT8_CHANNEL))
_NO_CODES, _MIXED = tl.constexpr(NO_CODES), tl.constexpr(MIXED)
_LOG2E = tl.constexpr(1.4426950408889634)
_E4M3_BITS = tl.constexpr(0x87F0_0000 - (1 << 32))
_E4M3_BIAS = tl.constexpr(2.0**120)
_NEVER = tl.constexpr(float("-inf"))
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Triton's interpreter holds bfloat16 as bits and would reckon with those."""


@triton.jit
def decode(codes, FORMAT: tl.constexpr, DTYPE: tl.constexpr):
    """The numbers that codes stand for, unscaled; as :func:`agentkv_kernels.quantize.decode`, on any architecture."""
    if FORMAT == _FP8_TOKEN:
        bits = (codes.to(tl.int32) << 20) & _E4M3_BITS
        return (bits.to(tl.float32, bitcast=True) * _E4M3_BIAS).to(DTYPE)
    if _INTERPRETED and FORMAT != _FP:
        return codes.to(tl.float32).to(DTYPE)
    return codes.to(DTYPE)


@triton.jit
def _dot(a, b, acc):
    """acc + a · b, all products exact, summed in float32."""
    if _INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _product(rows, keys, FORMAT: tl.constexpr):
    """[M, N] float32 of rows [M, D] and stored keys [N, D]."""
    nothing = tl.zeros([rows.shape[0], keys.shape[0]], tl.float32)
    return _dot(rows, tl.trans(decode(keys, FORMAT, rows.dtype)), nothing)


@triton.jit
def _walk(
    acc, peak, total, q, at, kept_rows, row_valid, share, slots, region, maths,
    FORMAT: tl.constexpr, PAGE: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, KEEP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Go on with acc [M, D], peak [M] and total [M] over one share of a region's ``slots``; scores to base 2.

    ``region`` points to what belongs to this head. Half-page 0 always exists, so what lies beyond the last slot may
    read it.
    """
    halves, pages, pages_part, tokens, scales, scales_part, channels, kept = region
    scaling, softcap, window = maths
    split, splits = share
    d = tl.arange(0, BLOCK_D)
    blocks = tl.cdiv(slots, N)
    for block in tl.range(split * blocks // splits, (split + 1) * blocks // splits, num_stages=STAGES):
        slot = block * N + tl.arange(0, N)
        inside = slot < slots
        token = tl.load(tokens + slot, mask=inside, other=-1)
        offset = (slot % PAGE)[:, None] * D + d[None, :]
        k_half = tl.load(pages + slot // PAGE, mask=inside, other=0).to(tl.int64)
        k_at = halves + (k_half * (PAGE * D))[:, None] + offset
        keys = tl.load(k_at) if D == BLOCK_D else tl.load(k_at, mask=(d < D)[None, :], other=0)
        if FORMAT == _INT8_CHANNEL:  # a block lies within one page
            of_channel = tl.load(channels + (block * N // PAGE) * D + d, mask=d < D, other=0.0)
            scaled = q.to(tl.float32) * of_channel[None, :]
            high = scaled.to(q.dtype)  # in two parts, or scores would be as coarse as a half-precision number
            low = (scaled - high.to(tl.float32)).to(q.dtype)
            scores = _product(high, keys, FORMAT) + _product(low, keys, FORMAT)
        else:
            scores = _product(q, keys, FORMAT)
            if FORMAT != _FP:
                scores *= tl.load(scales + slot, mask=inside, other=0.0)[None, :]
        if SOFTCAP:  # tanh(x) = 1 − 2 / (e^2x + 1)
            scores = softcap * _LOG2E * (1.0 - 2.0 / (tl.exp(scores * (2.0 * scaling / softcap)) + 1.0))
        else:
            scores *= scaling * _LOG2E
        seen = (token >= 0)[None, :] & (token[None, :] <= at[:, None])
        if WINDOW:
            seen &= token[None, :] > (at - window)[:, None]
        scores = tl.where(seen, scores, _NEVER)
        if KEEP:
            tl.store(kept + kept_rows[:, None] + slot[None, :], scores, mask=row_valid[:, None] & inside[None, :])

        new_peak = tl.maximum(peak, tl.max(scores, 1))
        base = tl.where(new_peak == _NEVER, 0.0, new_peak)  # a row that has seen nothing yet
        shrink = tl.exp2(peak - base)
        probs = tl.exp2(scores - base[:, None])
        total = total * shrink + tl.sum(probs, 1)
        peak = new_peak
        v_half = tl.load(pages + pages_part + slot // PAGE, mask=inside, other=0).to(tl.int64)
        # What an empty slot holds may be NaN, which a probability of zero would not silence.
        filled = (token >= 0)[:, None]
        if D != BLOCK_D:
            filled &= (d < D)[None, :]
        values = tl.load(halves + (v_half * (PAGE * D))[:, None] + offset, mask=filled, other=0)
        if FORMAT != _FP:
            probs *= tl.load(scales + scales_part + slot, mask=inside, other=0.0)[None, :]
        acc = acc * shrink[:, None]
        acc = _dot(probs.to(q.dtype), decode(values, FORMAT, q.dtype), acc)
    return acc, peak, total


@triton.jit
def _settle(acc, peak, total, sink):
    """Output and natural log-sum-exp of rows from their whole state; ``sink`` [M] is a logit, −inf for none."""
    sink = sink * _LOG2E
    top = tl.maximum(peak, sink)
    base = tl.where(top == _NEVER, 0.0, top)
    shrink = tl.exp2(peak - base)
    denominator = total * shrink + tl.exp2(sink - base)
    denominator = tl.where(denominator > 0.0, denominator, 1.0)  # nothing seen: zeros, and a sum of −inf
    return acc * (shrink / denominator)[:, None], (top + tl.log2(denominator)) / _LOG2E


@triton.jit(do_not_specialize=["code_slots", "fp_slots", "n_queries", "first_query", "all_queries", "window", "splits"])
def attend_kernel(
    query, q_head, q_row, query_index, at_head,
    fp_halves, fp_pages, fp_pages_part, fp_pages_head, code_halves, code_pages, code_pages_part, code_pages_head,
    scales, scales_part, scales_head, channels, channels_head, tokens, tokens_head,
    formats, code_counts, fp_counts, sinks, out, lse, part_acc, part_peak, part_total, kept,
    code_slots, fp_slots, n_queries, first_query, all_queries, splits, scaling, softcap, window,
    FORMAT: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    FP_PAGE: tl.constexpr, CODE_PAGE: tl.constexpr, M: tl.constexpr, FP_N: tl.constexpr, CODE_N: tl.constexpr,
    SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr, COUNTS: tl.constexpr,
    KEEP: tl.constexpr, DIRECT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Queries first_query, …, n_queries of them, over one share of the slots; grid (splits, row blocks, H).

    Writes ``part_*`` [Hq, n_queries, splits, …], or with DIRECT ``out`` [Hq, all_queries, D] and ``lse``. With KEEP,
    ``kept`` [Hq, n_queries, slots] gets the masked scores to base 2.
    """
    split, head = tl.program_id(0), tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * M + tl.arange(0, M)
    nth = row // G
    q_head_of = head * G + row % G
    row_valid = nth < n_queries
    place = nth + first_query
    d = tl.arange(0, BLOCK_D)
    wanted = row_valid[:, None] & (d < D)[None, :]
    q_at = q_head_of * q_head + place.to(tl.int64) * q_row
    q = tl.load(query + q_at[:, None] + d[None, :], mask=wanted, other=0.0)
    at = tl.load(query_index + head * at_head + place, mask=row_valid, other=0)
    kept_rows = (q_head_of * n_queries + nth) * (code_slots + fp_slots)
    of_codes, of_fp = code_slots, fp_slots
    if COUNTS:
        of_codes, of_fp = tl.load(code_counts + head), tl.load(fp_counts + head)
    acc = tl.zeros([M, BLOCK_D], tl.float32)
    peak = tl.full([M], _NEVER, tl.float32)
    total = tl.zeros([M], tl.float32)

    tokens += head * tokens_head
    scales += head * scales_head
    share, maths = (split, splits), (scaling, softcap, window)
    codes = (
        code_halves, code_pages + head * code_pages_head, code_pages_part, tokens,
        scales, scales_part, channels + head * channels_head, kept,
    )  # fmt: skip
    if FORMAT == _MIXED:
        mine = tl.load(formats + head)
        if mine == _INT8_TOKEN:
            acc, peak, total = _walk(
                acc, peak, total, q, at, kept_rows, row_valid, share, of_codes, codes, maths,
                _INT8_TOKEN, CODE_PAGE, CODE_N, D, BLOCK_D, SOFTCAP, WINDOW, KEEP, STAGES,
            )  # fmt: skip
        elif mine == _FP8_TOKEN:
            acc, peak, total = _walk(
                acc, peak, total, q, at, kept_rows, row_valid, share, of_codes, codes, maths,
                _FP8_TOKEN, CODE_PAGE, CODE_N, D, BLOCK_D, SOFTCAP, WINDOW, KEEP, STAGES,
            )  # fmt: skip
        else:
            acc, peak, total = _walk(
                acc, peak, total, q, at, kept_rows, row_valid, share, of_codes, codes, maths,
                _INT8_CHANNEL, CODE_PAGE, CODE_N, D, BLOCK_D, SOFTCAP, WINDOW, KEEP, STAGES,
            )  # fmt: skip
    elif FORMAT != _NO_CODES:
        acc, peak, total = _walk(
            acc, peak, total, q, at, kept_rows, row_valid, share, of_codes, codes, maths,
            FORMAT, CODE_PAGE, CODE_N, D, BLOCK_D, SOFTCAP, WINDOW, KEEP, STAGES,
        )  # fmt: skip
    fp = (
        fp_halves, fp_pages + head * fp_pages_head, fp_pages_part, tokens + code_slots,
        scales, scales_part, channels, kept + code_slots,
    )  # fmt: skip
    acc, peak, total = _walk(
        acc, peak, total, q, at, kept_rows, row_valid, share, of_fp, fp, maths,
        _FP, FP_PAGE, FP_N, D, BLOCK_D, SOFTCAP, WINDOW, KEEP, STAGES,
    )  # fmt: skip

    if DIRECT:
        sink = tl.full([M], _NEVER, tl.float32)
        if SINKS:
            sink = tl.load(sinks + q_head_of, mask=row_valid, other=0.0).to(tl.float32)
        outcome, log_sum = _settle(acc, peak, total, sink)
        target = q_head_of * all_queries + place
        tl.store(out + target[:, None] * D + d[None, :], outcome.to(out.dtype.element_ty), mask=wanted)
        tl.store(lse + target, log_sum, mask=row_valid)
    else:
        target = (q_head_of * n_queries + nth) * splits + split
        tl.store(part_acc + target[:, None] * D + d[None, :], acc, mask=wanted)
        tl.store(part_peak + target, peak, mask=row_valid)
        tl.store(part_total + target, total, mask=row_valid)


@triton.jit(do_not_specialize=["n_queries", "first_query", "all_queries", "splits"])
def join_kernel(
    part_acc, part_peak, part_total, sinks, out, lse, n_queries, first_query, all_queries, splits,
    D: tl.constexpr, BLOCK_D: tl.constexpr, SINKS: tl.constexpr, JOIN: tl.constexpr,
):  # fmt: skip
    """Join the shares of one row, JOIN at a time; grid (Hq · n_queries)."""
    row = tl.program_id(0).to(tl.int64)
    q_head, nth = row // n_queries, row % n_queries
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([1, BLOCK_D], tl.float32)
    peak, total = tl.full([1], _NEVER, tl.float32), tl.zeros([1], tl.float32)
    for first in range(0, splits, JOIN):
        split = first + tl.arange(0, JOIN)
        there = split < splits
        at = row * splits + split
        peaks = tl.load(part_peak + at, mask=there, other=_NEVER)
        totals = tl.load(part_total + at, mask=there, other=0.0)
        shares = tl.load(part_acc + at[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0)
        new_peak = tl.maximum(peak, tl.max(peaks, 0))
        base = tl.where(new_peak == _NEVER, 0.0, new_peak)
        shrink, weight = tl.exp2(peak - base), tl.exp2(peaks - base)
        acc = acc * shrink[:, None] + tl.sum(shares * weight[:, None], 0)[None, :]
        total = total * shrink + tl.sum(totals * weight, 0)
        peak = new_peak
    sink = tl.full([1], _NEVER, tl.float32)
    if SINKS:
        sink = tl.load(sinks + q_head + tl.arange(0, 1)).to(tl.float32)
    outcome, log_sum = _settle(acc, peak, total, sink)
    target = q_head * all_queries + first_query + nth
    tl.store(out + target * D + d[None, :], outcome.to(out.dtype.element_ty), mask=(d < D)[None, :])
    tl.store(lse + target + tl.arange(0, 1), log_sum)


@triton.jit(
    do_not_specialize=[
        "code_slots", "fp_slots", "n_queries", "first_query", "all_queries", "first_weight", "first_prob", "n_probs",
    ]
)  # fmt: skip
def finish_kernel(
    kept, lse, code_counts, fp_counts, weights, mass, probs,
    code_slots, fp_slots, n_queries, first_query, all_queries, first_weight, first_prob, n_probs,
    G: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr,
    COUNTS: tl.constexpr, MASS: tl.constexpr, ADD: tl.constexpr, PROBS: tl.constexpr,
):  # fmt: skip
    """Probabilities of ``kept`` scores, and their weighted sums per slot; grid (slot blocks, H).

    Query i of all has weight ``weights[i − first_weight]``, and its probabilities are row i − first_prob of ``probs``
    [Hq, n_probs, slots]; none where that is negative. With ADD, ``mass`` [H, slots] is added to.
    """
    head = tl.program_id(1).to(tl.int64)
    slots = code_slots + fp_slots
    slot = tl.program_id(0) * N + tl.arange(0, N)
    there = slot < slots
    filled = there
    if COUNTS:
        in_fp = (slot >= code_slots) & (slot - code_slots < tl.load(fp_counts + head))
        filled = (slot < tl.load(code_counts + head)) | in_fp
    summed = tl.zeros([N], tl.float32)
    for first in range(0, n_queries * G, ROWS):
        row = first + tl.arange(0, ROWS)
        nth, q_head = row // G, head * G + row % G
        place = nth + first_query
        valid = nth < n_queries
        rows = (q_head * n_queries + nth) * slots
        score = tl.load(kept + rows[:, None] + slot[None, :], mask=valid[:, None] & filled[None, :], other=_NEVER)
        log_sum = tl.load(lse + q_head * all_queries + place, mask=valid, other=0.0)
        share = tl.exp2(score - (tl.where(log_sum == _NEVER, 0.0, log_sum) * _LOG2E)[:, None])
        if MASS:
            weight = tl.load(weights + place - first_weight, mask=valid & (place >= first_weight), other=0.0)
            summed += tl.sum(share * weight[:, None], 0)
        if PROBS:
            target = (q_head * n_probs + place - first_prob) * slots
            wanted = valid & (place >= first_prob)
            tl.store(probs + target[:, None] + slot[None, :], share, mask=wanted[:, None] & there[None, :])
    if MASS:
        sums = mass + head * slots + slot
        if ADD:
            summed += tl.load(sums, mask=there, other=0.0)
        tl.store(sums, summed, mask=there)
