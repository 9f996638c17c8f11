//! What the volumes of a tenant are called in the backend, which knows no tenants.
//!
//! Those of the built-in tenant have the names that their users gave them, as on a machine without
//! tenants. Those of another begin with its name, and no name of the built-in tenant does.

use crate::caller::Tenant;

/// With what the names of other tenants' volumes begin. A claim of a request has no dot in it, and what
/// operators name otherwise is checked.
const RESERVED: &str = "osb-tenant.";

/// The name under which the backend keeps a tenant's volume; `None` where the name is reserved.
pub(crate) fn kept_name(tenant: &Tenant, name: &str) -> Option<String> {
    if !tenant.is_built_in() {
        return Some(format!("{RESERVED}{tenant}.{name}"));
    }
    (!name.starts_with(RESERVED)).then(|| name.to_owned())
}

/// The name that a tenant gave to what the backend keeps under this one, if it is that tenant's.
pub(crate) fn given_name<'a>(tenant: &Tenant, kept: &'a str) -> Option<&'a str> {
    match kept.strip_prefix(RESERVED) {
        None => tenant.is_built_in().then_some(kept),
        // A tenant's name has no dot in it.
        Some(rest) => {
            let (of, name) = rest.split_once('.')?;
            (of == tenant.as_str() && !tenant.is_built_in()).then_some(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_two_tenants_never_meet() {
        let tenants: Vec<Tenant> = ["default", "a", "a-b"].map(|it| it.parse().unwrap()).into();
        let names = [
            "data",
            "b.data",
            "osb-tenant.a.data",
            "osb-tenant.default.data",
        ];
        let mut seen = std::collections::HashMap::new();
        for tenant in &tenants {
            for name in names {
                let Some(kept) = kept_name(tenant, name) else {
                    assert!(tenant.is_built_in() && name.starts_with(RESERVED));
                    continue;
                };
                assert_eq!(given_name(tenant, &kept), Some(name));
                for other in tenants.iter().filter(|it| *it != tenant) {
                    assert_eq!(given_name(other, &kept), None, "{kept} for {other}");
                }
                assert_eq!(seen.insert(kept, (tenant, name)), None);
            }
        }
    }
}
