//! The map of a distributed database: the ranges of hashed keys, and the node and the tables with the rows of each range.
//!
//! Only Citus is supported. Every node has a copy of the map.

use super::error::PgError;
use super::node_address::NodeAddress;
use super::part_statements::Tables;
use super::pool::Client;
use super::row::get;
use crate::StoreError;

/// A range of hashed keys, with the place of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    /// The last hash of the range.
    pub(super) last: i32,
    /// The number of the range among the tables of sessions.
    pub(super) number: i64,
    pub(super) node: NodeAddress,
    pub(super) tables: Tables,
}

/// Selects the ranges of a schema ($1). A range has the same bounds and the same node in all tables.
const SHARDS: &str = "SELECT shards.shardmaxvalue::int AS last, node.nodename AS host, node.nodeport AS port,
         max(shards.shardid) FILTER (WHERE tables.relname = 'sessions') AS sessions,
         max(shards.shardid) FILTER (WHERE tables.relname = 'intents') AS intents,
         max(shards.shardid) FILTER (WHERE tables.relname = 'tips') AS tips
     FROM pg_catalog.pg_dist_shard AS shards
     JOIN pg_catalog.pg_class AS tables ON tables.oid = shards.logicalrelid
     JOIN pg_catalog.pg_dist_placement AS placed ON placed.shardid = shards.shardid
     JOIN pg_catalog.pg_dist_node AS node ON node.groupid = placed.groupid
     WHERE tables.relnamespace = to_regnamespace($1) AND tables.relname IN ('sessions', 'intents', 'tips')
         AND node.noderole = 'primary' AND shards.shardmaxvalue IS NOT NULL
     GROUP BY 1, 2, 3 ORDER BY 1";

/// Selects the numbers of the ranges that this node has, in order.
const LOCAL_SHARDS: &str =
    "SELECT coalesce(array_agg(shards.shardid ORDER BY shards.shardid), '{}') AS numbers
     FROM pg_catalog.pg_dist_shard AS shards
     JOIN pg_catalog.pg_dist_placement AS placed ON placed.shardid = shards.shardid
     JOIN pg_catalog.pg_dist_local_group AS this ON this.groupid = placed.groupid
     WHERE shards.logicalrelid = to_regclass($1)";

/// Reads the map, in the order of the ranges. Returns an empty map if the tables of a schema are not distributed. The name
/// must be quoted.
pub(super) async fn read(client: &Client, schema: &str) -> Result<Vec<Shard>, PgError> {
    let installed = "SELECT to_regclass('pg_catalog.pg_dist_placement') IS NOT NULL";
    let installed = client.query_opt(installed, &[]).await?;
    if !installed.is_some_and(|row| row.get(0)) {
        return Ok(Vec::new());
    }
    let rows = client.query(SHARDS, &[&schema]).await?;
    let shards = rows.iter().map(|row| {
        let table = |name: &str| -> Result<(i64, String), StoreError> {
            let number: Option<i64> = get(row, name)?;
            let number = number.ok_or_else(|| {
                StoreError::Setup(format!(
                    "its table `{name}` is not distributed like the others: run `palimpsest schema apply \
                     --distributed citus`"
                ))
            })?;
            Ok((number, format!("{schema}.{name}_{number}")))
        };
        let (number, sessions) = table("sessions")?;
        Ok(Shard {
            last: get(row, "last")?,
            number,
            node: NodeAddress {
                host: get(row, "host")?,
                port: u16::try_from(get::<i32>(row, "port")?).unwrap_or_default(),
            },
            tables: Tables {
                sessions,
                intents: table("intents")?.1,
                tips: table("tips")?.1,
            },
        })
    });
    let shards: Result<Vec<_>, StoreError> = shards.collect();
    Ok(shards?)
}

/// Returns the numbers of the ranges that the node of a connection has.
pub(super) async fn local(client: &Client, schema: &str) -> Result<Vec<i64>, PgError> {
    let table = format!("{schema}.sessions");
    let row = client.query_opt(LOCAL_SHARDS, &[&table]).await?;
    Ok(row.map_or_else(Vec::new, |row| row.get("numbers")))
}

/// Returns the hash of a key by which PostgreSQL and Citus distribute rows: `hashtext` in the collation `C`. It is a
/// variant of Jenkins' lookup3 that differs in the start and in the last word.
pub(super) fn hash(key: &str) -> i32 {
    let bytes = key.as_bytes();
    let word = |bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        bytes.fold(0_u32, |word, byte| (word << 8) | u32::from(*byte))
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut state = [0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095); 3];
    let (chunks, rest) = bytes.as_chunks::<12>();
    for chunk in chunks {
        for (number, part) in state.iter_mut().enumerate() {
            *part = part.wrapping_add(word(&chunk[number * 4..][..4]));
        }
        mix(&mut state);
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    state[0] = state[0].wrapping_add(word(&last[..4]));
    state[1] = state[1].wrapping_add(word(&last[4..8]));
    // The low byte of the last word belongs to the length.
    state[2] = state[2].wrapping_add(word(&last[8..11]) << 8);
    finish(state).cast_signed()
}

fn mix(state: &mut [u32; 3]) {
    for (step, bits) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (x, y, z) = (step % 3, (step + 1) % 3, (step + 2) % 3);
        state[x] = state[x].wrapping_sub(state[z]) ^ state[z].rotate_left(bits);
        state[z] = state[z].wrapping_add(state[y]);
    }
}

fn finish(mut state: [u32; 3]) -> u32 {
    for (step, bits) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = ((step + 2) % 3, (step + 1) % 3);
        state[x] = (state[x] ^ state[y]).wrapping_sub(state[y].rotate_left(bits));
    }
    state[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_like_in_the_database() {
        // The values of `hashtext`. A test on a database compares random keys.
        let known = [
            ("", -1_477_818_771),
            ("p!s", -583_123_174),
            ("p!12345678", 1_913_650_903),
            ("p!123456789", 2_047_908_772),
            ("p!1234567890", 654_716_102),
            ("p!12345678901", -1_775_140_554),
            ("project!session-0123456789abcdef", -1_331_970_919),
        ];
        for (key, expected) in known {
            assert_eq!(hash(key), expected, "{key}");
        }
    }
}
