-- Who may do what -------------------------------------------------------------------------------------------------------

COMMENT ON SCHEMA bullfrog IS 'Schema changes at once: bullfrog.plan, migrate, progress, pause, resume, finish, abort.';
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bullfrog FROM PUBLIC;
GRANT USAGE ON SCHEMA bullfrog TO PUBLIC;
GRANT SELECT ON bullfrog.moved, bullfrog.progress, bullfrog.quarantine TO PUBLIC;
GRANT SELECT (target, place) ON bullfrog.quarantined TO PUBLIC;
GRANT EXECUTE ON FUNCTION bullfrog.page(tid), bullfrog.place(tid), bullfrog.is_page_moved(int, tid), bullfrog.is_place_moved(int, tid), bullfrog.is_in_progress(int, bigint), bullfrog.is_own(xid),
    bullfrog.was_there(xid, bigint, bigint[]), bullfrog.measured(int), bullfrog.deviations(), bullfrog.verify(text), bullfrog.follow_name(oid, name) TO PUBLIC;
