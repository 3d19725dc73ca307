-- Times in time zones, infinite times, and functions of times.
SHOW timezone;
> UTC
SET timezone = 'Europe/Berlin';
= SET
SHOW timezone;
> Europe/Berlin
SELECT '2024-01-15 12:00+00'::timestamptz, '2024-07-15 12:00+00'::timestamptz, '2024-07-15 12:00'::timestamptz, '1890-01-01 00:00+00'::timestamptz;
> 2024-01-15 13:00:00+01|2024-07-15 14:00:00+02|2024-07-15 12:00:00+02|1890-01-01 00:53:28+00:53:28
SELECT '2024-03-31 02:30'::timestamptz, '2024-10-27 02:30'::timestamptz, '2024-10-27 01:30+00'::timestamptz, '2024-10-27 00:30+00'::timestamptz;
> 2024-03-31 03:30:00+02|2024-10-27 02:30:00+01|2024-10-27 02:30:00+01|2024-10-27 02:30:00+02
SELECT '2024-07-15 12:00 America/New_York'::timestamptz, '2024-07-15 12:00 utc'::timestamptz, '2024-07-15 12:00:00-03:30'::timestamptz, '2024-07-15 12:00 Nowhere'::timestamptz;
! 22007
SELECT '2024-07-15 12:00 America/New_York'::timestamp, '2024-07-15 12:00:00-03:30'::timestamp;
> 2024-07-15 12:00:00|2024-07-15 12:00:00
SELECT '2024-07-15 12:00+99'::timestamptz;
! 22009
SELECT '2024-07-15 22:30+00'::timestamptz::date, '2024-07-15 22:30+00'::timestamptz::timestamp, '2024-07-15 22:30+00'::timestamptz::time, '2024-07-15'::date::timestamptz, '2024-07-15 12:00'::timestamp::timestamptz;
> 2024-07-16|2024-07-16 00:30:00|00:30:00|2024-07-15 00:00:00+02|2024-07-15 12:00:00+02
SELECT '2024-07-15 12:00+00'::timestamptz AT TIME ZONE 'America/New_York', '2024-07-15 12:00'::timestamp AT TIME ZONE 'America/New_York', '2024-07-15 12:00+00' AT TIME ZONE 'UTC';
> 2024-07-15 08:00:00|2024-07-15 18:00:00+02|2024-07-15 12:00:00
SELECT '2024-07-15 12:00'::timestamp AT TIME ZONE INTERVAL '2 hours', '2024-07-15 12:00+00'::timestamptz AT TIME ZONE '+3', '2024-07-15 12:00+00'::timestamptz AT TIME ZONE 'UTC-3';
> 2024-07-15 12:00:00+02|2024-07-15 09:00:00|2024-07-15 15:00:00
SELECT now() AT TIME ZONE 'Mars';
! 22023
SELECT timezone('Asia/Tokyo', '2024-07-15 12:00+00'::timestamptz);
> 2024-07-15 21:00:00
SELECT date_trunc('day', '2024-07-15 22:30+00'::timestamptz), date_trunc('day', '2024-07-15 22:30+00'::timestamptz, 'America/New_York'), date_trunc('month', '2024-07-15'::date);
> 2024-07-16 00:00:00+02|2024-07-15 06:00:00+02|2024-07-01 00:00:00+02
SELECT extract(hour FROM '2024-07-15 22:30+00'::timestamptz), extract(day FROM '2024-07-15 22:30+00'::timestamptz), extract(timezone FROM '2024-07-15 22:30+00'::timestamptz), extract(timezone_hour FROM '2024-07-15 22:30+00'::timestamptz), extract(epoch FROM '2024-07-15 22:30+00'::timestamptz);
> 0|16|7200|2|1721082600.000000
SELECT '2024-03-30 12:00+01'::timestamptz + INTERVAL '1 day', '2024-03-30 12:00+01'::timestamptz + INTERVAL '24 hours', '2024-03-31 12:00+02'::timestamptz - INTERVAL '1 month', '2024-03-31 12:00+02'::timestamptz - '2024-03-30 12:00+01'::timestamptz;
> 2024-03-31 12:00:00+02|2024-03-31 13:00:00+02|2024-02-29 12:00:00+01|23:00:00
SELECT '2024-07-15 12:00'::timestamptz = '2024-07-15 12:00'::timestamp, '2024-07-15'::date < '2024-07-15 00:00+00'::timestamptz, '2024-07-15 12:00'::timestamptz - '2024-07-15 11:00'::timestamp;
> t|t|01:00:00
SELECT * FROM generate_series('2024-03-30 00:00'::timestamptz, '2024-04-01 00:00', '1 day') ORDER BY 1;
> 2024-03-30 00:00:00+01
> 2024-03-31 00:00:00+01
> 2024-04-01 00:00:00+02
SELECT to_timestamp(0), to_timestamp(1721000000.5), make_timestamptz(2024, 7, 15, 12, 0, 1.5), make_timestamptz(2024, 7, 15, 12, 0, 0, 'UTC');
> 1970-01-01 01:00:00+01|2024-07-15 01:33:20.5+02|2024-07-15 12:00:01.5+02|2024-07-15 14:00:00+02
CREATE TABLE zoned (id int PRIMARY KEY, at timestamptz, l timestamp DEFAULT '2024-01-01 12:00', d date GENERATED ALWAYS AS (at::date) STORED);
! 42P17
CREATE TABLE zoned (id int PRIMARY KEY, at timestamptz, l timestamp DEFAULT '2024-01-01 12:00');
= CREATE TABLE
INSERT INTO zoned VALUES (1, '2024-07-15 12:00'), (2, '2024-01-15 12:00Z');
= INSERT 0 2
SELECT * FROM zoned ORDER BY id;
> 1|2024-07-15 12:00:00+02|2024-01-01 12:00:00
> 2|2024-01-15 13:00:00+01|2024-01-01 12:00:00
SELECT id FROM zoned WHERE at = '2024-07-15 12:00';
> 1
SELECT at::text, to_json(at), json_build_object('at', at), ARRAY[at] FROM zoned ORDER BY id;
> 2024-07-15 12:00:00+02|"2024-07-15T12:00:00+02:00"|{"at" : "2024-07-15T12:00:00+02:00"}|{"2024-07-15 12:00:00+02"}
> 2024-01-15 13:00:00+01|"2024-01-15T13:00:00+01:00"|{"at" : "2024-01-15T13:00:00+01:00"}|{"2024-01-15 13:00:00+01"}
SET timezone = 'America/New_York';
= SET
SELECT * FROM zoned ORDER BY id;
> 1|2024-07-15 06:00:00-04|2024-01-01 12:00:00
> 2|2024-01-15 07:00:00-05|2024-01-01 12:00:00
SELECT id FROM zoned WHERE at = '2024-07-15 12:00';
SELECT at::date, at::time FROM zoned ORDER BY id;
> 2024-07-15|06:00:00
> 2024-01-15|07:00:00
SET timezone = -7;
= SET
SHOW timezone;
> <-07>+07
SELECT at FROM zoned ORDER BY id;
> 2024-07-15 03:00:00-07
> 2024-01-15 05:00:00-07
SET TIME ZONE '+05:30';
= SET
SET TIME ZONE 5.5;
= SET
SHOW TIME ZONE;
> <+05:30>-05:30
SELECT at FROM zoned ORDER BY id;
> 2024-07-15 15:30:00+05:30
> 2024-01-15 17:30:00+05:30
SET TIME ZONE 'Mars/Olympus';
! 22023
SET TIME ZONE 'utc';
= SET
SHOW timezone;
> UTC
SET TIME ZONE 'Asia/Kolkata';
= SET
BEGIN;
= BEGIN
SET LOCAL timezone = 'Asia/Tokyo';
= SET
SELECT at FROM zoned ORDER BY id;
> 2024-07-15 19:00:00+09
> 2024-01-15 21:00:00+09
COMMIT;
= COMMIT
SELECT at FROM zoned ORDER BY id;
> 2024-07-15 15:30:00+05:30
> 2024-01-15 17:30:00+05:30
RESET timezone;
= RESET
SELECT at FROM zoned ORDER BY id;
> 2024-07-15 10:00:00+00
> 2024-01-15 12:00:00+00
SELECT current_setting('timezone'), now() = current_timestamp, localtimestamp = now()::timestamp, current_date = now()::date;
> UTC|t|t|t
-- Infinite times.
CREATE TABLE t (id int PRIMARY KEY, d date, s timestamp, z timestamptz);
= CREATE TABLE
INSERT INTO t VALUES (1, 'infinity', 'Infinity', '-infinity'), (2, '-infinity', '-infinity', 'infinity'), (3, '2024-02-29', '2024-02-29 12:00', '2024-02-29 12:00Z');
= INSERT 0 3
SELECT * FROM t ORDER BY d;
> 2|-infinity|-infinity|infinity
> 3|2024-02-29|2024-02-29 12:00:00|2024-02-29 12:00:00+00
> 1|infinity|infinity|-infinity
CREATE INDEX ON t (s DESC);
= CREATE INDEX
SELECT id FROM t WHERE s > '2000-01-01' ORDER BY s;
> 3
> 1
SELECT id, d + 1, d - 1, s + interval '1 month', z - interval '1 day' FROM t ORDER BY id;
> 1|infinity|infinity|infinity|-infinity
> 2|-infinity|-infinity|-infinity|infinity
> 3|2024-03-01|2024-02-28|2024-03-29 12:00:00|2024-02-28 12:00:00+00
SELECT d::timestamp, s::date, z::timestamp, s::timestamptz FROM t ORDER BY id;
> infinity|infinity|-infinity|infinity
> -infinity|-infinity|infinity|-infinity
> 2024-02-29 00:00:00|2024-02-29|2024-02-29 12:00:00|2024-02-29 12:00:00+00
SELECT s::time FROM t ORDER BY id;
> 
> 
> 12:00:00
SELECT date_trunc('month', s), extract(hour from s), extract(day from z), isfinite(d), isfinite(s), isfinite(z) FROM t ORDER BY id;
> infinity|||f|f|f
> -infinity|||f|f|f
> 2024-02-01 00:00:00|12|29|t|t|t
SELECT s - '2024-01-01' FROM t WHERE id = 1;
! 22008
SELECT d - '2024-01-01'::date FROM t WHERE id = 1;
! 22008
SELECT 'infinity'::date = 'infinity'::timestamp, 'infinity'::timestamp > 'infinity'::timestamp, d IS NULL FROM t WHERE id = 1;
> t|f|f
SELECT min(d), max(s), count(DISTINCT z) FROM t;
> -infinity|infinity|3
SELECT 'infinite'::date;
! 22007
SELECT d FROM t WHERE d = 'infinity';
> infinity
-- Parts and lengths.
SELECT extract(century FROM d), extract(decade FROM d), extract(millennium FROM d), extract(year FROM d), extract(isoyear FROM d), extract(week FROM d), extract(doy FROM d), extract(quarter FROM d) FROM (VALUES ('2024-12-30'::date), ('2000-01-01'), ('2001-01-01'), ('1999-12-31'), ('0044-03-15 BC'), ('2021-01-03')) AS v(d);
> -1|-5|-1|-44|-44|11|74|1
> 20|199|2|1999|1999|52|365|4
> 20|200|2|2000|1999|52|1|1
> 21|200|3|2001|2001|1|1|1
> 21|202|3|2021|2020|53|3|1
> 21|202|3|2024|2025|1|365|4
SELECT date_part('seconds', '10:20:30.5'::time), extract(hour FROM '10:20:30'::time), extract(epoch FROM '10:20:30.5'::time), extract(ms FROM '00:00:01.5'::interval), extract(quarter FROM '7 months'::interval), extract(decade FROM '25 years'::interval);
> 30.5|10|37230.500000|1500.000|3|2
SELECT date_trunc('week', '2024-07-17 10:00'::timestamp), date_trunc('decade', '2024-07-17'::timestamp), date_trunc('century', '2024-07-17'::timestamp), date_trunc('millennium', '2024-07-17'::timestamp), date_trunc('quarter', '2024-08-17'::timestamp), date_trunc('milliseconds', '2024-07-17 10:00:00.123456'::timestamp);
> 2024-07-15 00:00:00|2020-01-01 00:00:00|2001-01-01 00:00:00|2001-01-01 00:00:00|2024-07-01 00:00:00|2024-07-17 10:00:00.123
SELECT extract(fortnight FROM now());
! 22023
SELECT date_trunc('fortnight', now());
! 22023
SELECT age('2024-03-01'::timestamp, '2024-01-31'::timestamp), age('2024-01-31'::timestamp, '2024-03-01'::timestamp), age('2024-07-15 10:00'::timestamp, '2020-02-29 12:00'::timestamp), age('2024-07-15'::date, '2001-04-10'::date), age('2024-01-01', '2024-01-01'::timestamp);
> 1 mon 1 day|-1 mons -1 days|4 years 4 mons 14 days 22:00:00|23 years 3 mons 5 days|00:00:00
SELECT make_date(2024, 2, 29), make_time(12, 34, 56.5), make_timestamp(2024, 2, 29, 1, 2, 3.25), make_interval(1, 2, 3, 4, 5, 6, 7.5), make_interval(), make_date(-44, 3, 15);
> 2024-02-29|12:34:56.5|2024-02-29 01:02:03.25|1 year 2 mons 25 days 05:06:07.5|00:00:00|0044-03-15 BC
SELECT make_date(2023, 2, 29);
! 22008
SELECT make_time(25, 0, 0);
! 22008
SELECT justify_hours('50 hours'), justify_days('65 days'), justify_interval('1 month -1 hour'), justify_interval('-1 month 40 days -30 hours');
> 2 days 02:00:00|2 mons 5 days|29 days 23:00:00|8 days 18:00:00
-- Rules hold for ever.
SELECT '2100-07-01'::timestamp AT TIME ZONE 'America/New_York', '2101-01-01'::timestamp AT TIME ZONE 'America/New_York';
> 2100-07-01 04:00:00+00|2101-01-01 05:00:00+00
SELECT '2400-02-29 12:00'::timestamp AT TIME ZONE 'Europe/Berlin', '9999-07-01'::timestamp AT TIME ZONE 'Australia/Sydney';
> 2400-02-29 11:00:00+00|9999-06-30 14:00:00+00
SELECT '30000-07-01'::timestamp AT TIME ZONE 'America/New_York', '294276-07-01'::timestamp AT TIME ZONE 'Europe/Berlin';
> 30000-07-01 04:00:00+00|294276-06-30 22:00:00+00
SELECT '294276-12-31 23:59:59'::timestamp AT TIME ZONE 'America/New_York';
! 22008
-- Abbreviations; some have meant several things, and mean what they did at the time.
SELECT '2011-03-27 00:00:00 MSK'::timestamptz, '2011-03-27 02:00:00 MSK'::timestamptz, '2012-07-01 12:00 msk'::timestamptz, '2014-10-26 02:00:01 MSK'::timestamptz, '2026-01-01 00:00 MSK'::timestamptz;
> 2011-03-26 21:00:00+00|2011-03-26 22:00:00+00|2012-07-01 08:00:00+00|2014-10-25 23:00:01+00|2025-12-31 21:00:00+00
SELECT '2010-07-01 12:00 MSK'::timestamptz, '2010-07-01 12:00 MSD'::timestamptz, '1980-01-01 00:00 MSK'::timestamptz;
> 2010-07-01 09:00:00+00|2010-07-01 08:00:00+00|1979-12-31 21:00:00+00
SELECT '2011-03-26 20:00 UTC'::timestamptz AT TIME ZONE 'MSK', '2011-03-27 00:00 UTC'::timestamptz AT TIME ZONE 'msk', '2014-10-25 22:00 UTC'::timestamptz AT TIME ZONE 'MSK', '2014-10-25 23:00 UTC'::timestamptz AT TIME ZONE 'MSK';
> 2011-03-26 23:00:00|2011-03-27 04:00:00|2014-10-26 01:00:00|2014-10-26 02:00:00
SELECT '2026-01-01 00:00 NPT'::timestamptz, '2026-01-01 00:00 CHADT'::timestamptz, '2026-01-01 00:00 ACWST'::timestamptz, '2026-01-01 00:00 ICT'::timestamptz, '2026-01-01 00:00 SGT'::timestamptz, '2026-01-01 00:00 BDT'::timestamptz;
> 2025-12-31 18:15:00+00|2025-12-31 10:15:00+00|2025-12-31 15:15:00+00|2025-12-31 17:00:00+00|2025-12-31 16:00:00+00|2025-12-31 18:00:00+00
SELECT '2000-01-01 00:00 VET'::timestamptz, '2015-01-01 00:00 VET'::timestamptz, '2026-01-01 00:00 VET'::timestamptz, '2020-01-01 00:00 YEKT'::timestamptz, '1990-07-01 00:00 ART'::timestamptz;
> 2000-01-01 04:00:00+00|2015-01-01 04:30:00+00|2026-01-01 04:00:00+00|2019-12-31 19:00:00+00|1990-07-01 03:00:00+00
SELECT timezone('VLAT', timestamp '2013-01-01 00:00'), timezone('YAKT', timestamptz '2013-01-01 00:00+00'), timestamp '2026-06-01 12:00' AT TIME ZONE 'LHDT';
> 2012-12-31 13:00:00+00|2013-01-01 10:00:00|2026-06-01 01:30:00+00
SELECT '2026-01-01 00:00 QQT'::timestamptz;
! 22007
SELECT make_timestamptz(2014, 12, 10, 0, 0, 0, 'MSK'), make_timestamptz(2008, 12, 10, 10, 10, 10, 'EST');
> 2014-12-09 21:00:00+00|2008-12-10 15:10:10+00
