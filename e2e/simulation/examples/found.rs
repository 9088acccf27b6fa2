//! Prints the plan that finds a bug, by its name; without a name, each name with the oracle that
//! reports it.

use muster_simulation::found;

fn main() -> anyhow::Result<()> {
    let asked = std::env::args().nth(1);
    for it in found::all() {
        match &asked {
            None => println!("{} {}", it.name, it.oracle),
            Some(name) if name == it.name => println!("{}", serde_json::to_string(&it.plan)?),
            Some(_) => {}
        }
    }
    Ok(())
}
