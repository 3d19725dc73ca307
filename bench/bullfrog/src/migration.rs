//! The changes of schema, and the ways to make them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::application::{Application, is_retriable};
use crate::random::{CUSTOMERS, DISTRICTS};
use crate::statements::Schema;

/// Customers or orders of a batch that is copied.
const BATCH: i32 = 100;
/// Between two batches, and between two looks at what is left. The first is what bullfrog's mover rests.
const REST: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_secs(1);

/// What the new schema is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// Customers become two tables (1:n).
    Split,
    /// Amounts of orders get a table of their own (n:1).
    Totals,
    /// Order lines and stock become one table (n:n).
    Joined,
}

/// How it comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arm {
    /// By the extension.
    Bullfrog,
    /// In one transaction that copies all rows, while the application waits.
    Eager,
    /// Triggers keep the new tables up to date while batches fill them; then the application switches.
    Copy,
}

impl Change {
    /// What the application knows afterwards.
    pub(crate) fn schema(self) -> Schema {
        match self {
            Self::Split => Schema::Split,
            Self::Totals => Schema::Totals,
            Self::Joined => Schema::Joined,
        }
    }

    fn script(self) -> Script {
        match self {
            Self::Split => Script {
                old_tables: &["customer"],
                new_tables: include_str!("../sql/split/new.sql"),
                live_tables: &[],
                fence: "",
                retire: include_str!("../sql/split/retire.sql"),
                follow: include_str!("../sql/split/follow.sql"),
                batch: include_str!("../sql/split/batch.sql"),
            },
            Self::Totals => Script {
                old_tables: &["order_line"],
                new_tables: include_str!("../sql/totals/new.sql"),
                live_tables: &["order_line"],
                // All of its tables are still there.
                fence: "ALTER TABLE order_line RENAME TO order_line_2;",
                retire: include_str!("../sql/totals/retire.sql"),
                follow: include_str!("../sql/totals/follow.sql"),
                batch: include_str!("../sql/totals/batch.sql"),
            },
            Self::Joined => Script {
                // In the order in which new orders take them.
                old_tables: &["stock", "order_line"],
                new_tables: include_str!("../sql/joined/new.sql"),
                live_tables: &["stock"],
                fence: "",
                retire: include_str!("../sql/joined/retire.sql"),
                follow: include_str!("../sql/joined/follow.sql"),
                batch: include_str!("../sql/joined/batch.sql"),
            },
        }
    }
}

/// The statements that make a change.
struct Script {
    old_tables: &'static [&'static str],
    /// Creates and fills the new tables.
    new_tables: &'static str,
    /// Old tables that stay in use.
    live_tables: &'static [&'static str],
    /// Ends the application's old version where bullfrog closes none of its tables.
    fence: &'static str,
    /// Ends the old schema when the new tables are full.
    retire: &'static str,
    /// Creates the triggers that keep the new tables up to date.
    follow: &'static str,
    /// Copies the customers or orders of a district with numbers from `$3` to before `$4`.
    batch: &'static str,
}

impl Script {
    /// The transaction that ends the old schema, having filled the new one with `fill`.
    fn switch(&self, fill: &str) -> String {
        format!(
            "BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE; {fill} {} COMMIT",
            self.old_tables.join(", "),
            self.retire
        )
    }
}

/// What is asked of the extension.
#[derive(Args, Clone)]
pub(crate) struct Wishes {
    /// Further arguments of bullfrog.migrate, as "granularity => 'tuple'".
    #[arg(long)]
    options: Option<String>,
    /// The extension ends the migration under load, too; else the old schema stays beside the new one, with all rows moved.
    #[arg(long)]
    finish: bool,
}

/// Makes the change under load. Tells the application when it may switch, and notes when things happened.
///
/// # Errors
/// Those of the server.
pub(crate) async fn migrate(
    application: &Application,
    client: &Client,
    change: Change,
    arm: Arm,
    wishes: &Wishes,
) -> Result<(), Error> {
    application.note("submitted");
    match arm {
        Arm::Bullfrog => bullfrog(application, client, change, wishes).await,
        Arm::Eager => eager(application, client, change).await,
        Arm::Copy => copy(application, client, change).await,
    }
}

async fn bullfrog(application: &Application, client: &Client, change: Change, wishes: &Wishes) -> Result<(), Error> {
    let script = change.script();
    let options = wishes.options.as_ref().map_or_else(String::new, |options| format!(", {options}"));
    let migrate = format!(
        "BEGIN; SELECT bullfrog.migrate('change', $definition${}$definition$, live => '{{{}}}'{options}); {} COMMIT",
        script.new_tables,
        script.live_tables.join(", "),
        script.fence
    );
    while let Err(error) = client.batch_execute(&migrate).await {
        client.batch_execute("ROLLBACK").await?;
        if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Err(error);
        }
        application.note("switch refused: no lock");
        sleep(LOOK).await;
    }
    application.deploy(change.schema());
    loop {
        sleep(LOOK).await;
        let left: i64 = client.query_one("SELECT sum(pages_left)::int8 FROM bullfrog.progress", &[]).await?.get(0);
        if left == 0 {
            break;
        }
    }
    application.note("moved");
    if !wishes.finish {
        return Ok(());
    }
    while let Err(error) = client.batch_execute("SELECT bullfrog.finish('change')").await {
        application.note(&format!("finish refused: {}", error.as_db_error().map_or("", |error| error.message())));
        sleep(LOOK).await;
    }
    application.note("finished");
    Ok(())
}

async fn eager(application: &Application, client: &Client, change: Change) -> Result<(), Error> {
    let script = change.script();
    client.batch_execute(&script.switch(script.new_tables)).await?;
    application.deploy(change.schema());
    application.note("finished");
    Ok(())
}

async fn copy(application: &Application, client: &Client, change: Change) -> Result<(), Error> {
    let script = change.script();
    // The definition over empty tables that stand before the old ones.
    for old in script.old_tables {
        client.batch_execute(&format!("CREATE TEMP TABLE {old} (LIKE public.{old})")).await?;
    }
    client.batch_execute(script.new_tables).await?;
    client.batch_execute("DISCARD TEMP").await?;
    client.batch_execute(script.follow).await?;
    let last = match change {
        Change::Split => CUSTOMERS,
        Change::Totals | Change::Joined => client.query_one("SELECT max(d_next_o_id) FROM district", &[]).await?.get(0),
    };
    let warehouses: i32 = client.query_one("SELECT max(w_id) FROM warehouse", &[]).await?.get(0);
    let batch = client.prepare(script.batch).await?;
    for warehouse in 1..=warehouses {
        for district in 1..=DISTRICTS {
            for first in (1..=last).step_by(BATCH as usize) {
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                    [&warehouse, &district, &first, &(first + BATCH)];
                while let Err(error) = client.execute(&batch, &parameters).await {
                    if !is_retriable(&error) {
                        return Err(error);
                    }
                }
                sleep(REST).await;
            }
        }
    }
    application.note("moved");
    client.batch_execute("ANALYZE").await?;
    client.batch_execute(&script.switch("")).await?;
    application.deploy(change.schema());
    application.note("finished");
    Ok(())
}
