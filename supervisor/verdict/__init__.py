"""Pure judgement: claim and facts to open effects, finality, separation, scope and the completion argument.

The laws, which every module here keeps:

1. The footprint of a claim is what its globs cover. Finality is about the footprint.
2. Final only if every row that applies says final. A route without a witness is a row too.
3. The endpoint is CMD's exit or the limit that ended it; ``within D`` counts from it on CLOCK_BOOTTIME. A ``task``
   limit is part of what is measured; after an ``observation`` limit CMD is a live descendant like any other.
4. What was seen is always kept (``finality.observed``); a label is given only when the verdict is final, and a final
   verdict without a label means that no grader was declared.
5. A handling needs two proofs: ``prevented`` (the act) and ``checked`` (the evidence that it held). Each names the
   decision it supports; a proof for finality does not stand in for one of separation.
6. Gaps cost by dependency: each names the verdicts that rest on what is missing. A gap never makes a verdict good.
7. Final and clean do not mean safe.
"""
