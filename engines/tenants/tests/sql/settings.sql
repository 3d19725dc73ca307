-- Settings of the session and of the transaction.
SELECT set_config('app.person', 'anna', false), current_setting('app.person');
> anna|anna
SELECT current_setting('app.person'), current_setting('app.none', true), current_setting('app.none', true) IS NULL;
> anna||t
SELECT current_setting('app.none');
! 42704
SHOW app.person;
> anna
SET app.person = 'berta';
= SET
SHOW app.person;
> berta
RESET app.person;
= RESET
BEGIN;
= BEGIN
SELECT set_config('app.person', 'carla', true);
> carla
SELECT current_setting('app.person');
> carla
COMMIT;
= COMMIT
SELECT current_setting('app.person') = '';
> t
BEGIN;
= BEGIN
SELECT set_config('app.other', 'x', false);
> x
ROLLBACK;
= ROLLBACK
SELECT current_setting('app.other', true);
> 
SELECT set_config(NULL, 'x', false);
! 22004
SELECT set_config('no_such_setting', 'x', false);
! 42704
SELECT current_setting('timezone') = current_setting('TimeZone');
> t
SELECT set_config('timezone', 'Europe/Berlin', false);
> Europe/Berlin
SELECT timestamptz '2024-07-01 12:00:00+00';
> 2024-07-01 14:00:00+02
RESET timezone;
= RESET
SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only');
> read committed|off
SHOW transaction_isolation;
> read committed
SHOW transaction_read_only;
> off
SHOW default_transaction_isolation;
> read committed
SHOW default_transaction_read_only;
> off
SHOW default_transaction_deferrable;
> off
SET default_transaction_isolation = 'serializable';
= SET
SHOW transaction_isolation;
> serializable
RESET default_transaction_isolation;
= RESET
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
= BEGIN
SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only');
> repeatable read|on
SET transaction_isolation = 'serializable';
! 25001
ROLLBACK;
= ROLLBACK
BEGIN;
= BEGIN
SET transaction_isolation = 'serializable';
= SET
SHOW transaction_isolation;
> serializable
SET transaction_read_only = on;
= SET
SHOW transaction_read_only;
> on
CREATE TABLE refused (a int);
! 25006
ROLLBACK;
= ROLLBACK
BEGIN;
= BEGIN
SELECT 1;
> 1
SET TRANSACTION READ ONLY;
= SET
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
= SET
SHOW transaction_read_only;
> on
SET TRANSACTION READ WRITE;
! 25001
ROLLBACK;
= ROLLBACK
BEGIN;
= BEGIN
SELECT set_config('transaction_read_only', 'on', true);
> on
SHOW transaction_read_only;
> on
COMMIT;
= COMMIT
SHOW transaction_read_only;
> off
SELECT pg_is_in_recovery();
> f
SELECT name, statement, is_holdable, is_binary FROM pg_cursors;
BEGIN;
= BEGIN
DECLARE numbers CURSOR FOR SELECT 1;
= DECLARE CURSOR
SELECT name, statement, is_holdable, is_binary FROM pg_cursors;
> numbers|DECLARE numbers CURSOR FOR SELECT 1|f|f
COMMIT;
= COMMIT
SELECT count(*) FROM pg_prepared_statements;
> 0
SELECT setting FROM pg_settings WHERE name = 'max_index_keys';
> 32
SELECT setting FROM pg_catalog.pg_settings WHERE name = 'default_transaction_isolation';
> read committed
SELECT count(*) FROM pg_settings WHERE name = 'standard_conforming_strings' AND setting = 'on' AND vartype = 'bool';
> 1
BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE;
= BEGIN
SHOW transaction_isolation;
> serializable
COMMIT;
= COMMIT
BEGIN DEFERRABLE;
= BEGIN
COMMIT;
= COMMIT
START TRANSACTION READ ONLY DEFERRABLE;
= START TRANSACTION
ROLLBACK;
= ROLLBACK
SET timezone = 'Asia/Tokyo';
= SET
SET TIME ZONE LOCAL;
= SET
SHOW timezone;
> UTC
SET timezone TO DEFAULT;
= SET
SET LOCAL timezone TO DEFAULT;
= SET
RESET timezone;
= RESET
RESET ALL;
= RESET
