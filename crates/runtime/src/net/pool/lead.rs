//! Slots in use whose network is to lead elsewhere. Which it should lead to is decided by `sandbox::policy`.

use std::os::fd::BorrowedFd;

use super::super::slot::Purpose;
use super::super::{Error, Network, SlotIndex};
use super::Pool;

impl Pool {
    /// Has the network of a slot in use, whose namespace is `net`, lead elsewhere. Blocks for some milliseconds.
    pub(crate) fn lead(
        &self,
        index: SlotIndex,
        net: BorrowedFd<'_>,
        to: Network,
    ) -> Result<(), Error> {
        self.inner.factory.lead(index, net, to)
    }

    /// Which of these slots have their other end in the gate's namespace.
    pub(crate) fn gated(&self, slots: &[SlotIndex]) -> Result<Vec<SlotIndex>, Error> {
        let factory = &self.inner.factory;
        let names = factory.gated_names()?;
        let is_gated = |index: &&SlotIndex| {
            let name = factory.interface_name(Purpose::Sandbox, **index);
            names.contains(&name)
        };
        Ok(slots.iter().filter(is_gated).copied().collect())
    }

    /// What `/etc/resolv.conf` says where the gate answers for names, at the address that every sandbox calls its gateway.
    pub(crate) fn gated_resolv_conf(&self) -> String {
        format!("nameserver {}\n", self.inner.config.addresses.gateway())
    }
}
