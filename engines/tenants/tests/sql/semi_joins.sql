-- Which rows have others, and which have none: NULL, what is there twice, what depends on the row around, empty sides; of more rows than are asked one by one.
CREATE TABLE a (id int PRIMARY KEY, k int, w text, m numeric(8,2));
= CREATE TABLE
CREATE TABLE b (id int PRIMARY KEY, k int, w text, m numeric(8,2));
= CREATE TABLE
CREATE INDEX b_k ON b (k);
= CREATE INDEX
CREATE TABLE none (k int, w text);
= CREATE TABLE
CREATE TABLE even (k int NOT NULL);
= CREATE TABLE
INSERT INTO a SELECT g, nullif(g % 150, 7), nullif('w' || g % 20, 'w3'), g % 9 / 2.0 FROM generate_series(1, 600) g;
= INSERT 0 600
INSERT INTO b SELECT g, nullif(g * 3 % 120, 9), nullif('w' || g % 11, 'w5'), g % 5 / 2.00 FROM generate_series(1, 300) g;
= INSERT 0 300
INSERT INTO even SELECT g * 2 FROM generate_series(1, 40) g;
= INSERT 0 40

SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k);
> 156|45024
SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k);
> 444|135276
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w = a.w);
> 48|13488
SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w = a.w);
> 552|166812
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.m = a.m);
> 334|100165
SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.m = a.m AND b.id > 290);
> 266|80135
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k + 1 AND b.id < 100);
> 152|43372
SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.id > a.id);
> 523|169788
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k OR b.w = a.w);
> 356|104676
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k IS NOT DISTINCT FROM a.k);
> 160|45952
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM none WHERE none.k = a.k);
> 0|
SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT 1 FROM none WHERE none.k = a.k);
> 600|180300
SELECT count(*), sum(k) FROM none WHERE NOT EXISTS (SELECT 1 FROM a WHERE none.k = a.k);
> 0|
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b JOIN even ON even.k = b.k WHERE b.k = a.k);
> 52|13884
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND NOT EXISTS (SELECT 1 FROM even WHERE even.k = b.k));
> 104|31140
SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND NOT EXISTS (SELECT 1 FROM even WHERE even.k = a.k));
> 104|31140
SELECT id, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS has FROM a WHERE id % 97 = 7 ORDER BY id;
> 7|f
> 104|f
> 201|t
> 298|f
> 395|f
> 492|t
> 589|f
SELECT has, count(*) FROM (SELECT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS has FROM a) q GROUP BY has ORDER BY has;
> f|444
> t|156
SELECT EXISTS (SELECT 1 FROM b WHERE b.k = q.k) AS has, sum(n) FROM (SELECT k, count(*) AS n FROM a GROUP BY k) q GROUP BY 1 ORDER BY 1;
> f|444
> t|156
SELECT count(*), sum(k) FROM (SELECT max(id) AS id, k FROM a GROUP BY k HAVING EXISTS (SELECT 1 FROM b WHERE b.k = a.k)) q;
> 39|2331
SELECT count(*), sum(id) FROM (SELECT max(id) AS id, k FROM a GROUP BY k HAVING NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)) q;
> 111|58794

-- IN, and NOT IN, which a NULL leaves open
SELECT count(*), sum(id) FROM a WHERE k IN (SELECT k FROM b);
> 156|45024
SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM b);
> 0|
SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL);
> 440|134348
SELECT count(*), sum(id) FROM a WHERE (k IN (SELECT k FROM b)) IS NULL;
> 444|135276
SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM even);
> 436|136812
SELECT count(*), sum(id) FROM a WHERE k IN (SELECT k FROM none);
> 0|
SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM none);
> 600|180300
SELECT count(*), sum(id) FROM a WHERE NULL NOT IN (SELECT k FROM none);
> 600|180300
SELECT count(*), sum(id) FROM a WHERE NULL NOT IN (SELECT k FROM even);
> 0|
SELECT count(*), sum(id) FROM a WHERE (k, w) IN (SELECT k, w FROM b);
> 48|13488
SELECT count(*), sum(id) FROM a WHERE (k, w) NOT IN (SELECT k, w FROM b);
> 0|
SELECT count(*), sum(id) FROM a WHERE ((k, w) IN (SELECT k, w FROM b)) IS NULL;
> 552|166812
SELECT count(*), sum(id) FROM a WHERE k IN (SELECT k FROM b WHERE b.w = a.w);
> 48|13488
SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.w = a.w);
> 402|122320
SELECT count(*), sum(id) FROM a WHERE (k NOT IN (SELECT k FROM b WHERE b.w = a.w)) IS NULL;
> 150|44492
SELECT count(*), sum(id) FROM a WHERE m <> ALL (SELECT m FROM b WHERE b.id < 4);
> 399|120201
DELETE FROM a WHERE id > 500 AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k);
= DELETE 76
UPDATE a SET w = 'has' WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.id % 2 = 0);
= UPDATE 80
SELECT w, count(*), sum(id) FROM a GROUP BY w ORDER BY w;
> has|80|23160
> w0|19|4880
> w1|27|7087
> w10|18|4600
> w11|26|6806
> w12|18|4596
> w13|26|6838
> w14|18|4532
> w15|26|6930
> w16|18|4708
> w17|26|6962
> w18|18|4704
> w19|26|6994
> w2|18|4316
> w4|19|4816
> w5|26|6650
> w6|18|4488
> w7|27|7249
> w8|18|4424
> w9|26|6774
> |26|6618

-- many constants, and arrays
SELECT count(*), sum(id) FROM a WHERE k IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144);
> 41|9762
SELECT count(*), sum(id) FROM a WHERE k NOT IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144);
> 479|127442
SELECT count(*), sum(id) FROM a WHERE k NOT IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, NULL);
> 0|
SELECT count(*), sum(id) FROM a WHERE (k IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, NULL)) IS NULL;
> 483|128370
SELECT count(*), sum(id) FROM a WHERE m IN (0, 1, 1.5, 2, 2.5, 3, 3.5, 7, 8, 9.0);
> 413|110411
SELECT count(*), sum(id) FROM a WHERE m IN (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144);
> 239|64755
SELECT count(*), sum(id) FROM a WHERE w NOT IN ('w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', 'w8', 'w9', 'w10');
> 301|81110
SELECT count(*), sum(id) FROM a WHERE k = ANY ('{1,2,3,5,8,13,21,34,55,89,144}');
> 41|9762
SELECT count(*), sum(id) FROM a WHERE k <> ALL ('{1,2,3,5,8,13,21,34,55,89,144}');
> 479|127442
SELECT count(*), sum(id) FROM a WHERE k <> ALL ('{1,2,3,5,8,13,21,34,55,89,NULL}');
> 0|
SELECT count(*), sum(id) FROM a WHERE (k = ANY ('{1,2,3,5,8,13,21,34,55,89,NULL}')) IS NULL;
> 486|129252
SELECT count(*), sum(id) FROM a WHERE w = ANY ('{w1,w2,w3,w4,w5,w6,w7,w8,w9,w10}');
> 197|50404
SELECT count(*), sum(id) FROM a WHERE m = ANY ('{0,1.0,1.50,2,2.5,3,3.5,7,8,9}');
> 413|110411
SELECT count(*), sum(id) FROM a WHERE k = ANY (ARRAY(SELECT k FROM b));
> 156|45024
SELECT count(*), sum(id) FROM a WHERE k <> ALL (ARRAY(SELECT k FROM b WHERE k IS NOT NULL));
> 364|92180
