//! The five transactions of TPC-C (clauses 2.4 to 2.8) over one connection.

use std::collections::HashMap;

use rand::Rng;
use rand::rngs::SmallRng;
use serde::Serialize;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::random::{self, DISTRICTS, ITEMS};
use crate::statements::{Schema, Statement};

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    NewOrder,
    Payment,
    Delivery,
    OrderStatus,
    StockLevel,
}

impl Kind {
    /// One of the mix: 45, 43, 4, 4 and 4 %.
    fn draw(rng: &mut SmallRng) -> Self {
        match rng.random_range(0..100) {
            0..45 => Self::NewOrder,
            45..88 => Self::Payment,
            88..92 => Self::Delivery,
            92..96 => Self::OrderStatus,
            _ => Self::StockLevel,
        }
    }
}

/// A transaction with all that it is about, so that it can be tried again.
#[derive(Debug)]
pub(crate) enum Input {
    NewOrder { warehouse: i32, district: i32, customer: i32, lines: Vec<Line> },
    Payment { warehouse: i32, district: i32, customer: Customer, cents: i64 },
    Delivery { warehouse: i32, carrier: i32 },
    OrderStatus { customer: Customer },
    StockLevel { warehouse: i32, district: i32, threshold: i32 },
}

#[derive(Debug)]
pub(crate) struct Line {
    item: i32,
    supplier: i32,
    quantity: i32,
}

#[derive(Debug)]
pub(crate) struct Customer {
    warehouse: i32,
    district: i32,
    name: Name,
}

#[derive(Debug)]
enum Name {
    Number(i32),
    Last(String),
}

impl Customer {
    /// Six of ten give their name only.
    fn draw(rng: &mut SmallRng, warehouse: i32, district: i32) -> Self {
        let by_name = rng.random_range(0..100) < 60;
        let name = if by_name { Name::Last(random::last_name(rng)) } else { Name::Number(random::customer(rng)) };
        Self { warehouse, district, name }
    }
}

impl Input {
    /// The next transaction of a terminal.
    pub(crate) fn draw(rng: &mut SmallRng, warehouses: i32) -> Self {
        let (warehouse, district) = (rng.random_range(1..=warehouses), rng.random_range(1..=DISTRICTS));
        match Kind::draw(rng) {
            Kind::NewOrder => {
                let customer = random::customer(rng);
                let mut lines: Vec<Line> = (0..rng.random_range(5..=15))
                    .map(|_| Line {
                        item: random::item(rng),
                        supplier: if rng.random_range(0..100) == 0 {
                            other(rng, warehouse, warehouses)
                        } else {
                            warehouse
                        },
                        quantity: rng.random_range(1..=10),
                    })
                    .collect();
                // All lock stock in the same order, so that there are no deadlocks.
                lines.sort_by_key(|line| (line.item, line.supplier));
                if rng.random_range(0..100) == 0 {
                    lines.last_mut().expect("there are five at least").item = ITEMS + 1;
                }
                Self::NewOrder { warehouse, district, customer, lines }
            }
            Kind::Payment => {
                let home = rng.random_range(0..100) < 85;
                let (of, at) = if home {
                    (warehouse, district)
                } else {
                    (other(rng, warehouse, warehouses), rng.random_range(1..=DISTRICTS))
                };
                Self::Payment {
                    warehouse,
                    district,
                    customer: Customer::draw(rng, of, at),
                    cents: rng.random_range(100..=500_000),
                }
            }
            Kind::Delivery => Self::Delivery { warehouse, carrier: rng.random_range(1..=10) },
            Kind::OrderStatus => Self::OrderStatus { customer: Customer::draw(rng, warehouse, district) },
            Kind::StockLevel => Self::StockLevel { warehouse, district, threshold: rng.random_range(10..=20) },
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NewOrder { .. } => Kind::NewOrder,
            Self::Payment { .. } => Kind::Payment,
            Self::Delivery { .. } => Kind::Delivery,
            Self::OrderStatus { .. } => Kind::OrderStatus,
            Self::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// Another warehouse, if there is one.
fn other(rng: &mut SmallRng, warehouse: i32, warehouses: i32) -> i32 {
    if warehouses == 1 { warehouse } else { (warehouse + rng.random_range(0..warehouses - 1)) % warehouses + 1 }
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection of the application, with the statements it has prepared.
pub(crate) struct Session {
    client: Client,
    schema: Schema,
    prepared: HashMap<Statement, tokio_postgres::Statement>,
}

impl Session {
    /// The application as it knows a schema.
    pub(crate) fn new(client: Client, schema: Schema) -> Self {
        Self { client, schema, prepared: HashMap::new() }
    }

    /// The schema that it knows.
    pub(crate) fn schema(&self) -> Schema {
        self.schema
    }

    /// Goes on with a new version of the application. Statements that are the same in both stay prepared, as drivers keep them.
    pub(crate) fn deploy(&mut self, schema: Schema) {
        if self.schema != schema {
            self.prepared.retain(|statement, _| statement.text(self.schema) == statement.text(schema));
            self.schema = schema;
        }
    }

    /// Runs a transaction to its end. One that fails is rolled back.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn run(&mut self, input: &Input) -> Result<(), Error> {
        self.client.batch_execute("BEGIN").await?;
        let outcome = match input {
            Input::NewOrder { warehouse, district, customer, lines } => {
                self.new_order(*warehouse, *district, *customer, lines).await
            }
            Input::Payment { warehouse, district, customer, cents } => {
                self.payment(*warehouse, *district, customer, *cents).await.map(|()| true)
            }
            Input::Delivery { warehouse, carrier } => self.delivery(*warehouse, *carrier).await.map(|()| true),
            Input::OrderStatus { customer } => self.order_status(customer).await.map(|()| true),
            Input::StockLevel { warehouse, district, threshold } => {
                self.stock_level(*warehouse, *district, *threshold).await.map(|()| true)
            }
        };
        let commits = matches!(outcome, Ok(true));
        self.client.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await?;
        outcome.map(|_| ())
    }

    async fn prepared(&mut self, statement: Statement) -> Result<tokio_postgres::Statement, Error> {
        if let Some(prepared) = self.prepared.get(&statement) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(&statement.text(self.schema)).await?;
        self.prepared.insert(statement, prepared.clone());
        Ok(prepared)
    }

    async fn rows(&mut self, statement: Statement, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        let prepared = self.prepared(statement).await?;
        self.client.query(&prepared, parameters).await
    }

    async fn row(&mut self, statement: Statement, parameters: Parameters<'_>) -> Result<Row, Error> {
        let prepared = self.prepared(statement).await?;
        self.client.query_one(&prepared, parameters).await
    }

    async fn write(&mut self, statement: Statement, parameters: Parameters<'_>) -> Result<(), Error> {
        let prepared = self.prepared(statement).await?;
        self.client.execute(&prepared, parameters).await.map(|_| ())
    }

    /// Gives whether it commits: an order of an item that there is not must be undone.
    async fn new_order(&mut self, warehouse: i32, district: i32, customer: i32, lines: &[Line]) -> Result<bool, Error> {
        self.row(Statement::WarehouseTax, &[&warehouse]).await?;
        let order: i32 = self.row(Statement::NextOrder, &[&warehouse, &district]).await?.get(0);
        self.row(Statement::CustomerTerms, &[&warehouse, &district, &customer]).await?;
        if self.schema == Schema::Split {
            self.row(Statement::CustomerName, &[&warehouse, &district, &customer]).await?;
        }
        let is_local = i32::from(lines.iter().all(|line| line.supplier == warehouse));
        let count = lines.len() as i32;
        self.write(Statement::InsertOrder, &[&warehouse, &district, &order, &customer, &count, &is_local]).await?;
        self.write(Statement::InsertNewOrder, &[&warehouse, &district, &order]).await?;
        let mut total = 0;
        for (number, line) in (1_i32..).zip(lines) {
            let Some(item) = self.rows(Statement::Item, &[&line.item]).await?.pop() else {
                return Ok(false);
            };
            let stock = self.row(Statement::Stock, &[&line.item, &line.supplier]).await?;
            let quantity = stock.get::<_, i32>(0) - line.quantity;
            let quantity = if quantity >= 10 { quantity } else { quantity + 91 };
            let is_remote = i32::from(line.supplier != warehouse);
            self.write(Statement::UpdateStock, &[&line.item, &line.supplier, &quantity, &line.quantity, &is_remote])
                .await?;
            let cents = item.get::<_, i64>(0) * i64::from(line.quantity);
            let information: &str = stock.get(district as usize + 1);
            self.write(
                Statement::InsertLine,
                &[
                    &warehouse,
                    &district,
                    &order,
                    &number,
                    &line.item,
                    &line.supplier,
                    &line.quantity,
                    &cents,
                    &information,
                ],
            )
            .await?;
            total += cents;
        }
        if self.schema == Schema::Totals {
            self.write(Statement::InsertTotal, &[&warehouse, &district, &order, &total]).await?;
        }
        Ok(true)
    }

    /// The number of a customer: of those with the same name the one in the middle. None if there is none of the name.
    async fn number(&mut self, customer: &Customer) -> Result<Option<i32>, Error> {
        let last = match &customer.name {
            Name::Number(number) => return Ok(Some(*number)),
            Name::Last(last) => last,
        };
        let found = self.rows(Statement::CustomersByName, &[&customer.warehouse, &customer.district, last]).await?;
        Ok(found.get(found.len().saturating_sub(1) / 2).map(|row| row.get(0)))
    }

    async fn payment(&mut self, warehouse: i32, district: i32, customer: &Customer, cents: i64) -> Result<(), Error> {
        self.row(Statement::PayWarehouse, &[&warehouse, &cents]).await?;
        self.row(Statement::PayDistrict, &[&warehouse, &district, &cents]).await?;
        let Some(number) = self.number(customer).await? else { return Ok(()) };
        let key: Parameters<'_> = &[&customer.warehouse, &customer.district, &number];
        self.row(Statement::CustomerAddress, key).await?;
        let note = format!("{number} {} {} {district} {warehouse} {cents} ", customer.district, customer.warehouse);
        self.row(Statement::PayCustomer, &[key, &[&cents, &note]].concat()).await?;
        self.write(
            Statement::InsertHistory,
            &[&number, &customer.district, &customer.warehouse, &district, &warehouse, &cents, &"payment"],
        )
        .await
    }

    async fn delivery(&mut self, warehouse: i32, carrier: i32) -> Result<(), Error> {
        for district in 1..=DISTRICTS {
            let Some(oldest) = self.rows(Statement::OldestNewOrder, &[&warehouse, &district]).await?.pop() else {
                continue;
            };
            let order: i32 = oldest.get(0);
            let key: Parameters<'_> = &[&warehouse, &district, &order];
            self.write(Statement::DeleteNewOrder, key).await?;
            let customer: i32 = self.row(Statement::DeliverOrder, &[key, &[&carrier]].concat()).await?.get(0);
            self.write(Statement::DeliverLines, key).await?;
            let cents: i64 = self.row(Statement::OrderAmount, key).await?.get(0);
            self.write(Statement::CreditCustomer, &[&warehouse, &district, &customer, &cents]).await?;
        }
        Ok(())
    }

    async fn order_status(&mut self, customer: &Customer) -> Result<(), Error> {
        let Some(number) = self.number(customer).await? else { return Ok(()) };
        let key: Parameters<'_> = &[&customer.warehouse, &customer.district, &number];
        self.row(Statement::CustomerBalance, key).await?;
        if self.schema == Schema::Split {
            self.row(Statement::CustomerName, key).await?;
        }
        if let Some(order) = self.rows(Statement::LastOrder, key).await?.pop() {
            let order: i32 = order.get(0);
            self.rows(Statement::OrderLines, &[&customer.warehouse, &customer.district, &order]).await?;
        }
        Ok(())
    }

    async fn stock_level(&mut self, warehouse: i32, district: i32, threshold: i32) -> Result<(), Error> {
        let next: i32 = self.row(Statement::LastOrderNumber, &[&warehouse, &district]).await?.get(0);
        self.row(Statement::LowStock, &[&warehouse, &district, &next, &threshold]).await.map(|_| ())
    }
}
