-- Queries in FROM, in expressions, and in statements that write.
CREATE TABLE department (id int PRIMARY KEY, name text NOT NULL, boss int);
= CREATE TABLE
CREATE TABLE employee (id int PRIMARY KEY, name text, department int, salary numeric(8,2), hired date);
= CREATE TABLE
CREATE INDEX ON employee (department);
= CREATE INDEX
CREATE TABLE bonus (employee int, amount numeric(8,2), paid date);
= CREATE TABLE
INSERT INTO department VALUES (1, 'sales', 2), (2, 'works', 4), (3, 'empty', NULL);
= INSERT 0 3
INSERT INTO employee VALUES (1, 'ann', 1, 100, '2020-01-01'), (2, 'bob', 1, 200, '2019-05-01'), (3, 'cid', 2, 150, '2021-03-01'), (4, 'dot', 2, 300, '2018-07-01'), (5, 'eve', NULL, 50, NULL);
= INSERT 0 5
INSERT INTO bonus VALUES (1, 10, '2022-01-01'), (1, 20, '2022-02-01'), (3, 5, '2022-01-01'), (NULL, 1, '2022-03-01');
= INSERT 0 4

-- derived tables
SELECT count(*) FROM (SELECT 1) s;
> 1
SELECT * FROM (SELECT id, name FROM employee WHERE salary > 100) AS rich ORDER BY id;
> 2|bob
> 3|cid
> 4|dot
SELECT s.d, s.total FROM (SELECT department AS d, sum(salary) AS total FROM employee GROUP BY department) s WHERE s.total > 100 ORDER BY s.d;
> 1|300.00
> 2|450.00
SELECT a, b FROM (VALUES (1, 'x'), (2, 'y')) AS v(a, b) ORDER BY a DESC;
> 2|y
> 1|x
SELECT column1 FROM (VALUES (3), (1), (2)) v ORDER BY 1;
> 1
> 2
> 3
SELECT * FROM (SELECT * FROM employee ORDER BY salary DESC LIMIT 2) t ORDER BY id;
> 2|bob|1|200.00|2019-05-01
> 4|dot|2|300.00|2018-07-01
SELECT e.name, d.name FROM employee e JOIN (SELECT id, name FROM department WHERE id < 3) d ON d.id = e.department ORDER BY e.id;
> ann|sales
> bob|sales
> cid|works
> dot|works
SELECT e.name, d.n FROM employee e LEFT JOIN (SELECT id, 1 AS n FROM department WHERE id = 1) d ON d.id = e.department ORDER BY e.id;
> ann|1
> bob|1
> cid|
> dot|
> eve|
SELECT d.name, s.n FROM department d LEFT JOIN (SELECT department, count(*) AS n FROM employee GROUP BY 1) s ON s.department = d.id ORDER BY d.id;
> sales|2
> works|2
> empty|
SELECT x.y FROM (SELECT y FROM (SELECT id + 1 AS y FROM department) a WHERE y > 2) x ORDER BY 1;
> 3
> 4
SELECT * FROM (SELECT 1);
! 42601
SELECT s.nothing FROM (SELECT 1 AS a) s;
! 42703
SELECT * FROM (SELECT 1 AS a) s(a, b);
! 42P10

-- scalar
SELECT (SELECT max(salary) FROM employee);
> 300.00
SELECT name, (SELECT name FROM department d WHERE d.id = e.department) FROM employee e ORDER BY e.id;
> ann|sales
> bob|sales
> cid|works
> dot|works
> eve|
SELECT name FROM employee WHERE salary = (SELECT max(salary) FROM employee);
> dot
SELECT name FROM employee e WHERE salary > (SELECT avg(salary) FROM employee i WHERE i.department = e.department) ORDER BY 1;
> bob
> dot
SELECT name FROM employee WHERE id = (SELECT boss FROM department WHERE name = 'works');
> dot
SELECT (SELECT id FROM employee WHERE id > 100) IS NULL;
> t
SELECT (SELECT id FROM employee);
! 21000
SELECT (SELECT id, name FROM employee WHERE id = 1);
! 42601
SELECT (SELECT count(*) FROM bonus b WHERE b.employee = e.id) AS n, name FROM employee e ORDER BY n DESC, name;
> 2|ann
> 1|cid
> 0|bob
> 0|dot
> 0|eve
SELECT coalesce((SELECT sum(amount) FROM bonus WHERE employee = e.id), 0) + salary FROM employee e ORDER BY e.id;
> 130.00
> 200.00
> 155.00
> 300.00
> 50.00
SELECT CASE WHEN false THEN (SELECT 1 / 0) ELSE 1 END;
> 1
SELECT (SELECT (SELECT e.id + d.id FROM department d WHERE d.id = e.department) FROM department WHERE id = 3) FROM employee e ORDER BY e.id;
> 2
> 3
> 5
> 6
> 

-- EXISTS
SELECT name FROM employee e WHERE EXISTS (SELECT FROM bonus b WHERE b.employee = e.id) ORDER BY 1;
> ann
> cid
SELECT name FROM employee e WHERE EXISTS (SELECT 1 FROM bonus b WHERE b.employee = e.id) ORDER BY 1;
> ann
> cid
SELECT name FROM employee e WHERE NOT EXISTS (SELECT 1 FROM bonus b WHERE b.employee = e.id AND b.amount > 10) ORDER BY 1;
> bob
> cid
> dot
> eve
SELECT EXISTS (SELECT 1 FROM bonus WHERE amount > 1000);
> f
SELECT EXISTS (SELECT 1 / 0 FROM bonus WHERE false);
> f

-- IN, ANY, ALL
SELECT name FROM employee WHERE id IN (SELECT employee FROM bonus) ORDER BY 1;
> ann
> cid
SELECT name FROM employee WHERE id NOT IN (SELECT employee FROM bonus) ORDER BY 1;
SELECT name FROM employee WHERE id NOT IN (SELECT employee FROM bonus WHERE employee IS NOT NULL) ORDER BY 1;
> bob
> dot
> eve
SELECT name FROM employee WHERE department NOT IN (SELECT id FROM department WHERE id = 1) ORDER BY 1;
> cid
> dot
SELECT name FROM employee WHERE department NOT IN (SELECT id FROM department WHERE id > 9) ORDER BY 1;
> ann
> bob
> cid
> dot
> eve
SELECT name FROM employee WHERE salary >= ALL (SELECT salary FROM employee) ORDER BY 1;
> dot
SELECT name FROM employee WHERE salary > ANY (SELECT amount * 10 FROM bonus) ORDER BY 1;
> ann
> bob
> cid
> dot
> eve
SELECT name FROM employee WHERE salary > SOME (SELECT amount * 10 FROM bonus) ORDER BY 1;
> ann
> bob
> cid
> dot
> eve
SELECT name FROM employee WHERE (department, id) IN (SELECT id, boss FROM department) ORDER BY 1;
> bob
> dot
SELECT 1 IN (SELECT NULL::int);
> 
SELECT NULL IN (SELECT 1 WHERE false);
> f
SELECT NULL NOT IN (SELECT 1 WHERE false);
> t
SELECT 1 > ALL (SELECT 1 WHERE false), 1 > ANY (SELECT 1 WHERE false);
> t|f
SELECT (1, NULL) IN (SELECT 1, 2), (1, NULL) IN (SELECT 2, 2);
> |f
SELECT 1 = ALL (SELECT 1 UNION ALL SELECT NULL), 2 = ALL (SELECT 1 UNION ALL SELECT NULL);
> |f
SELECT id IN (SELECT d.boss FROM department d WHERE d.id = e.department) FROM employee e ORDER BY id;
> f
> t
> f
> t
> f
SELECT 1 IN (SELECT 1, 2);
! 42601
SELECT 'a' IN (SELECT 1);
! 22P02
SELECT true IN (SELECT 1);
! 42883

-- with groups
SELECT department, count(*) FROM employee GROUP BY department HAVING count(*) > (SELECT 1) ORDER BY 1;
> 1|2
> 2|2
SELECT department, (SELECT name FROM department d WHERE d.id = e.department), count(*) FROM employee e GROUP BY department ORDER BY 1;
> 1|sales|2
> 2|works|2
> ||1
SELECT sum((SELECT count(*) FROM bonus b WHERE b.employee = e.id)) FROM employee e;
> 3
SELECT d.id, d.name, count(e.id) FROM department d LEFT JOIN employee e ON e.department = d.id GROUP BY d.id ORDER BY d.id;
> 1|sales|2
> 2|works|2
> 3|empty|0
SELECT e.department, e.name FROM employee e GROUP BY e.department;
! 42803
SELECT department FROM employee e GROUP BY department HAVING max(salary) > (SELECT sum(amount) FROM bonus WHERE employee = e.department) ORDER BY 1;
> 1
SELECT (SELECT e.name) FROM employee e GROUP BY e.department;
! 42803

-- LATERAL
SELECT d.name, t.name FROM department d CROSS JOIN LATERAL (SELECT name FROM employee e WHERE e.department = d.id ORDER BY salary DESC LIMIT 1) t ORDER BY 1;
> sales|bob
> works|dot
SELECT d.name, t.name FROM department d LEFT JOIN LATERAL (SELECT name FROM employee e WHERE e.department = d.id ORDER BY salary DESC LIMIT 1) t ON true ORDER BY 1;
> empty|
> sales|bob
> works|dot
SELECT d.id, s.x FROM department d, LATERAL (SELECT d.id * 10 AS x) s ORDER BY 1;
> 1|10
> 2|20
> 3|30
SELECT d.id, s.x FROM department d, (SELECT d.id * 10 AS x) s;
! 42P01
SELECT d.id, g FROM department d, generate_series(1, d.id) g ORDER BY 1, 2;
> 1|1
> 2|1
> 2|2
> 3|1
> 3|2
> 3|3

-- ON
SELECT e.name FROM employee e JOIN department d ON d.id = (SELECT min(id) FROM department) AND e.department = d.id ORDER BY 1;
> ann
> bob
SELECT e.name, d.name FROM employee e LEFT JOIN department d ON d.id = e.department AND EXISTS (SELECT 1 FROM bonus b WHERE b.employee = e.id) ORDER BY e.id;
> ann|sales
> bob|
> cid|works
> dot|
> eve|

-- writes
UPDATE employee SET salary = (SELECT max(salary) FROM employee) WHERE id = 5 RETURNING salary;
> 300.00
UPDATE employee e SET salary = salary + (SELECT sum(amount) FROM bonus b WHERE b.employee = e.id) WHERE id IN (SELECT employee FROM bonus) RETURNING id, salary;
> 1|130.00
> 3|155.00
SELECT id, salary FROM employee ORDER BY id;
> 1|130.00
> 2|200.00
> 3|155.00
> 4|300.00
> 5|300.00
UPDATE employee SET (name, salary) = (SELECT 'boss', 999) WHERE id = 4 RETURNING name, salary;
> boss|999.00
UPDATE employee e SET department = d.id FROM (SELECT id FROM department WHERE name = 'empty') d WHERE e.id = 5 RETURNING e.department;
> 3
DELETE FROM bonus WHERE employee IN (SELECT id FROM employee WHERE name = 'cid') RETURNING amount;
> 5.00
DELETE FROM bonus b WHERE NOT EXISTS (SELECT 1 FROM employee e WHERE e.id = b.employee);
= DELETE 1
SELECT count(*) FROM bonus;
> 2
INSERT INTO bonus SELECT id, (SELECT 7), hired FROM employee WHERE id > (SELECT 3) RETURNING *;
> 4|7.00|2018-07-01
> 5|7.00|
INSERT INTO bonus VALUES ((SELECT max(id) FROM employee), (SELECT 1 + 1), NULL) RETURNING *;
> 5|2.00|
INSERT INTO bonus (employee, amount, paid) SELECT 1, '12.5', '2024-01-01' RETURNING *;
> 1|12.50|2024-01-01
INSERT INTO department VALUES (1, 'again', 1) ON CONFLICT (id) DO UPDATE SET name = (SELECT 'was ' || department.name), boss = excluded.boss RETURNING *;
> 1|was sales|1
INSERT INTO department VALUES (9, 'nine', 1) RETURNING (SELECT count(*) FROM department);
> 3
CREATE TABLE checked (a int CHECK (a > (SELECT 1)));
! 0A000
CREATE TABLE defaulted (a int DEFAULT (SELECT 1));
! 0A000
