"""Where keys and values are kept.

formats     formats, layout, and the one place that says how many bytes anything takes
arena       the page pool that all sessions share
region      the slots of one format in one session
store       pages and slot metadata of one session; the only code that moves keys and values
snapshot    a store's content, for copies and files
view        what a policy sees
plan        a structural change, and the checks before it is applied
budget      tokens, bytes or shares, resolved to slots
controller  makes room before tokens go in, as the policy decides
adapter     the seam with transformers
"""
