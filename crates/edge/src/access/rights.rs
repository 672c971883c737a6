//! The required right of each rpc, as one table. A test compares the table with the contract's descriptors.

use super::grant::Right;

/// The requirement of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredAccess {
    /// No credential. Health checks are open to all callers.
    Nothing,
    /// A valid credential with any grant. Unknown methods are in this class, so an rpc that is missing in the table is
    /// never open to anonymous callers.
    Credential,
    /// A right in the project of the call.
    Right(Right),
}

use Right::{Admin, Compact, Read, Write};

/// The required right of each rpc. `CallTool` needs `Read` here, because most tools only read. Its handler also
/// requires `Compact` for the tool that snips.
const TABLE: &[(&str, Right)] = &[
    ("ContextService/AppendMessages", Write),
    ("ContextService/PrepareContext", Write),
    ("ContextService/SyncContext", Write),
    ("ContextService/StreamContext", Read),
    ("ContextService/Compact", Compact),
    ("ContextService/CommitSummary", Compact),
    ("ContextService/Snip", Compact),
    ("ContextService/PersistToolResult", Write),
    ("ContextService/ReadToolResult", Read),
    ("ContextService/GetSessionMemory", Read),
    ("ContextService/UpdateSessionMemory", Write),
    ("ContextService/UpdateWorkingState", Write),
    ("ContextService/RestoreContext", Compact),
    ("ContextService/RewindSession", Compact),
    ("ContextService/ListTools", Read),
    ("ContextService/CallTool", Read),
    ("SessionService/CreateSession", Write),
    ("SessionService/ForkSession", Write),
    ("SessionService/GetSession", Read),
    ("SessionService/UpdateSession", Write),
    ("SessionService/DeleteSession", Admin),
    ("SessionService/ListSessions", Read),
    ("SessionService/GetView", Read),
    ("SessionService/ListMessages", Read),
    ("SessionService/SearchMessages", Read),
    ("SessionService/ListEvents", Read),
    ("SessionService/WatchSession", Read),
    ("SessionService/ExportTranscript", Read),
    ("AdminService/ListProjects", Read),
    ("AdminService/ListStoredSessions", Admin),
    ("AdminService/ReadStoredSession", Admin),
    ("AdminService/ReadStoredFile", Admin),
];

const PACKAGE: &str = "/palimpsest.context.v1.";
const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// Returns the requirement of the method with the given path.
pub fn required_access(path: &str, public_reflection: bool) -> RequiredAccess {
    if path.starts_with(HEALTH) {
        return RequiredAccess::Nothing;
    }
    if public_reflection && REFLECTION.iter().any(|service| path.starts_with(service)) {
        return RequiredAccess::Nothing;
    }
    // The default is to require a credential, so a forgotten table entry does not open a method.
    path.strip_prefix(PACKAGE)
        .and_then(|name| TABLE.iter().find(|(known, _)| *known == name))
        .map_or(RequiredAccess::Credential, |(_, right)| {
            RequiredAccess::Right(*right)
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use palimpsest_proto::FILE_DESCRIPTOR_SET;
    use prost_reflect::DescriptorPool;

    use super::*;

    /// Returns the paths of all rpcs of the contract, without `HookService`, which callers implement.
    fn paths() -> BTreeSet<String> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let ours = pool.services().filter(|service| {
            service.parent_file().package_name() == "palimpsest.context.v1"
                && service.name() != "HookService"
        });
        ours.flat_map(|service| {
            let name = service.full_name().to_owned();
            let path =
                move |method: prost_reflect::MethodDescriptor| format!("/{name}/{}", method.name());
            service.methods().map(path).collect::<Vec<_>>()
        })
        .collect()
    }

    #[test]
    fn every_rpc_and_nothing_else_has_a_right() {
        let paths = paths();
        assert!(paths.len() > 20, "{paths:?}");
        for path in &paths {
            let need = required_access(path, true);
            assert!(
                matches!(need, RequiredAccess::Right(_)),
                "{path} takes no right"
            );
        }
        let listed: BTreeSet<_> = TABLE
            .iter()
            .map(|(name, _)| format!("{PACKAGE}{name}"))
            .collect();
        assert_eq!(listed, paths);
    }

    #[test]
    fn health_is_public_and_reflection_only_if_configured() {
        let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        for open in [false, true] {
            assert_eq!(
                required_access("/grpc.health.v1.Health/Check", open),
                RequiredAccess::Nothing
            );
            let expected = if open {
                RequiredAccess::Nothing
            } else {
                RequiredAccess::Credential
            };
            assert_eq!(required_access(reflection, open), expected);
            let near = ["/x", "", "/palimpsest.context.v1.ContextService/Compac"];
            for path in near {
                assert_eq!(
                    required_access(path, open),
                    RequiredAccess::Credential,
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn the_documentation_lists_the_rights_of_the_table() {
        let page = include_str!("../../../../docs/access.md");
        for right in [Read, Write, Compact, Admin] {
            let row = page
                .lines()
                .find(|line| line.starts_with(&format!("| `{right}`")));
            let row = row.unwrap_or_else(|| panic!("{right} has no row"));
            // The names are the parts between backquotes. The first one is the right.
            let documented: BTreeSet<_> = row.split('`').skip(3).step_by(2).collect();
            let of_right = TABLE.iter().filter(|(_, required)| *required == right);
            let methods: BTreeSet<_> = of_right
                .map(|(name, _)| name.split_once('/').unwrap().1)
                .collect();
            assert_eq!(documented, methods, "{right}");
        }
    }
}
