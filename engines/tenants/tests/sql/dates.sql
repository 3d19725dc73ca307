-- Dates, times and intervals in the forms that people write.
SHOW datestyle;
> ISO, MDY
SET datestyle = 'ISO';
= SET
SET datestyle TO 'ISO, MDY';
= SET
SHOW datestyle;
> ISO, MDY
SELECT date 'Nov 22 2026', date '22-Nov-2026', date '20261122', date '11/22/2026', date '2026.326', date 'Sunday, November 22, 2026';
> 2026-11-22|2026-11-22|2026-11-22|2026-11-22|2026-11-22|2026-11-22
SELECT date '1/8/69', date '1/8/70', date 'J2451187', date 'Jan 8, 99 BC';
> 2069-01-08|1970-01-08|1999-01-08|0099-01-08 BC
SELECT date '22/11/2026';
! 22008
SELECT date 'Feb 30 2026';
! 22008
SELECT date 'soon';
! 22007
SELECT timestamptz 'Mon Feb 10 17:32:01.4 1997 PST', timestamptz '19970210 173201 -0800', timestamptz '1997-02-10 5:32 pm America/New_York';
> 1997-02-11 01:32:01.4+00|1997-02-11 01:32:01+00|1997-02-10 22:32:00+00
SELECT timestamptz '2000-03-15 08:14:01 GMT+8', timestamptz '2000-03-15 02:14:05 MST+7:00', timestamptz '2001-09-22T18:19:20';
> 2000-03-15 16:14:01+00|2000-03-15 09:14:05+00|2001-09-22 18:19:20+00
SELECT timestamptz '1997-02-10 12:00 America/Does_not_exist';
! 22023
SELECT timestamptz '1997-02-10 12:00 +99';
! 22009
SELECT timestamp '2001-02-16 20:38:40' AT TIME ZONE 'PST', timestamptz '2001-02-16 20:38:40 EST' AT TIME ZONE 'est';
> 2001-02-17 04:38:40+00|2001-02-16 20:38:40
SELECT make_timestamptz(1973, 07, 15, 08, 15, 55.33, '+2'), make_timestamptz(1973, 07, 15, 08, 15, 55.33, 'EST');
> 1973-07-15 06:15:55.33+00|1973-07-15 13:15:55.33+00
SELECT time '04:05 PM', time '040506', time '2020-05-26 13:30:25.575401', time '24:00';
> 16:05:00|04:05:06|13:30:25.575401|24:00:00
SELECT time '12:00 America/New_York';
! 22007
SELECT time '25:00';
! 22008
SELECT interval '1-2', interval '-1 +02:03', interval '1 2:03:04', interval '1.5 weeks', interval '1.5 months', interval '1.5 years';
> 1 year 2 mons|-1 days +02:03:00|1 day 02:03:04|10 days 12:00:00|1 mon 15 days|1 year 6 mons
SELECT interval 'P1Y2M3DT4H5M6.7S', interval 'P0001-02-03T04:05:06', interval '1day 2h', interval '@ 1 minute ago', interval '1:20.5';
> 1 year 2 mons 3 days 04:05:06.7|1 year 2 mons 3 days 04:05:06|1 day 02:00:00|-00:01:00|00:01:20.5
SELECT interval '1 year 2 mons 3 days 04:05:06' year, interval '1-2' month, interval '3 04:05:06' hour, interval '1:20' minute to second;
> 1 year|1 year 2 mons|3 days 04:00:00|00:01:20
SELECT interval '2' hour, interval '1 2' day to hour, interval '90' minute;
> 02:00:00|1 day 02:00:00|01:30:00
SELECT interval '1 day 1 day';
! 22007
SELECT interval '123 11';
! 22007
SELECT interval '0.1 months 2147483647 days';
! 22015
SELECT extract(epoch from date '2020-08-11'), extract(epoch from timestamp '2020-08-11'), date_part('epoch', date '2020-08-11');
> 1597104000|1597104000.000000|1597104000
SELECT date '99-01-08';
! 22008
SELECT timestamptz 'now' = now(), date 'today' = current_date, 'tomorrow'::date - 'yesterday'::date, timestamp 'today' = current_date, time 'now' IS NULL;
> t|t|2|t|f
SELECT interval '1day2h';
! 22007
SELECT extract(year from timestamp 'infinity'), extract(day from timestamptz '-infinity'), date_part('epoch', timestamp '-infinity');
> Infinity||-Infinity
SELECT extract(hour from date '2020-08-11');
! 0A000
SELECT interval '1 2:03' day to second, interval '123 11' day to hour, interval '2:03' minute to second, interval '2 millenniums';
> 1 day 02:03:00|123 days 11:00:00|00:02:03|2000 years
SELECT make_interval(days => 3, hours := 2), make_interval(1, 2, secs => 1.5);
> 3 days 02:00:00|1 year 2 mons 00:00:01.5
SELECT make_interval(moons => 3);
! 42883
SELECT avg(x), sum(x) FROM (VALUES (interval '1 day'), (interval '2 mons'), (NULL)) v(x);
> 1 mon 12:00:00|2 mons 1 day
SELECT date '2024-02-29' + time '10:00', time '10:00' + date '2024-02-29', interval '1 day' + date '2024-02-29', interval '25 hours' + time '10:00', time '10:00' - time '11:30';
> 2024-02-29 10:00:00|2024-02-29 10:00:00|2024-03-01 00:00:00|11:00:00|-01:30:00
SELECT time '10:00' - date '2024-02-29';
! 42883
-- The ends of the calendar.
SELECT '5874897-12-31'::date, '4714-11-24 BC'::date, '294276-12-31'::date::timestamp;
> 5874897-12-31|4714-11-24 BC|294276-12-31 00:00:00
SELECT '5874898-01-01'::date;
! 22008
SELECT '5874897-12-31'::date + 1;
! 22008
SELECT '4714-11-24 BC'::date - 1;
! 22008
SELECT '294277-01-01'::date::timestamp;
! 22008
SELECT '5874897-12-31'::date + time '10:00';
! 22008
SELECT make_timestamp(5874897, 1, 1, 0, 0, 0);
! 22008
SELECT to_date('5874897-01-01', 'YYYY-MM-DD');
> 5874897-01-01
SELECT to_timestamp('5874897-01-01', 'YYYY-MM-DD');
! 22008
SELECT '294276-12-31 23:59:59-10'::timestamptz;
! 22008
SELECT '294276-12-31 23:59:59+10'::timestamptz;
> 294276-12-31 13:59:59+00
SELECT '4714-11-24 00:00 BC'::timestamp AT TIME ZONE interval '10 hours';
! 22008
SELECT to_timestamp(-210866803200);
> 4714-11-24 00:00:00+00 BC
SELECT to_timestamp(-210866803201);
! 22008
SELECT date_trunc('century', '4714-11-24 BC'::timestamp);
! 22008
SELECT '294276-12-31 23:59:59'::timestamp + interval '178956970 years';
! 22008
SELECT interval '1 day' * 1e18;
! 22008
SELECT interval '178000000 years' + interval '178000000 years';
! 22008
