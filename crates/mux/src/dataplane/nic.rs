//! The NIC's end of the data path: attaches the program, and takes over the state of a previous
//! service.
//!
//! Owns the choice between native and generic XDP. Called by `mod` when a data path is opened, and
//! when the NIC has come back.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd};

use packetio::xdp::{Device, XdpMode, bpf};
use rustix::io::Errno;

use super::layout::{self, SLOTS, SlotValue};
use super::maps::Maps;
use super::{Dataplane, DataplaneError, channel, near_index, veth};
use crate::limits::MTU_MAX;

/// `XDP_FLAGS_SKB_MODE`
pub(super) const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`
pub(super) const NATIVE: u32 = 1 << 2;

/// The interface `name`.
pub(super) fn find(name: &str) -> Result<Device, DataplaneError> {
    let failed = |(step, errno): (&str, Errno)| match errno {
        Errno::NODEV => DataplaneError::refused(name, "there is no such interface".to_owned()),
        errno => DataplaneError::io(format!("{name}: {step}"), errno),
    };
    Device::find(name).map_err(failed)
}

/// The key of the flow hash: the previous service's, or a new one.
pub(super) fn hash_key(maps: &Maps) -> Result<[u64; 2], DataplaneError> {
    let mut value = [0; layout::SETTINGS_BYTES];
    let failed = |errno| DataplaneError::io("map settings", errno);
    maps.map("settings")?
        .lookup(&0u32.to_ne_bytes(), &mut value)
        .map_err(failed)?;
    if value[16..32].iter().all(|byte| *byte == 0) {
        rustix::rand::getrandom(&mut value[16..32], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| DataplaneError::io("getrandom", errno))?;
    }
    let mut words = [[0; 8]; 2];
    words[0].copy_from_slice(&value[16..24]);
    words[1].copy_from_slice(&value[24..32]);
    Ok(words.map(u64::from_ne_bytes))
}

impl Dataplane {
    /// Attaches to the NIC and lets frames of the virtual ports leave through it.
    pub(super) fn start(&mut self) -> Result<(), DataplaneError> {
        self.frames = channel::choose(&self.options, &self.nic, &self.maps)?;
        if self.maps.are_recovered {
            self.recover_mode();
            // Applications claim and lease their ports anew. Until then the maps keep their
            // entries.
            self.recover_devices()?;
        }
        self.local_recover();
        self.nic_attach()?;
        match self.options.is_local {
            true => self.local_open(),
            false => {
                self.local_close();
                Ok(())
            }
        }
    }

    /// The NIC was removed and came back, or is being driven for the first time.
    ///
    /// # Errors
    /// No such interface; another XDP program is attached; a mode that the driver does not have; an
    /// MTU for which virtual ports have no room.
    pub fn nic_attach(&mut self) -> Result<(), DataplaneError> {
        let name = self.options.interface.clone();
        let nic = find(&name)?;
        if nic.mtu > MTU_MAX {
            let why = format!(
                "its MTU is {}, and virtual ports carry {MTU_MAX} bytes at most (`ip link set \
                 {name} mtu {MTU_MAX}`)",
                nic.mtu
            );
            return Err(DataplaneError::refused(name, why));
        }
        self.nic = nic;
        (self.mac, self.mtu) = (self.nic.mac, self.nic.mtu as u32);
        if !self.take_over_link() {
            self.attach_nic()?;
        }
        self.write_settings()?;
        let index = self.nic.index.to_ne_bytes();
        // This map exists only if the programs for bulk lanes were loaded.
        let _ = self.maps.set("bulk_nic", &0u32.to_ne_bytes(), &index);
        self.maps
            .set("nic", &layout::WAY_NIC.to_ne_bytes(), &index)?;
        self.nic_sockets()
    }

    /// The NIC's program, which finds the owners of its frames.
    pub(super) fn nic_program(&self) -> BorrowedFd<'_> {
        match self.frames {
            Some(_) => self.maps.switch.as_fd(),
            None => self.maps.ingress.as_fd(),
        }
    }

    /// Updates the link that a previous service pinned to the new program. False if the link's
    /// interface is gone.
    fn take_over_link(&self) -> bool {
        let pin = self.pin("link_nic");
        let Ok(link) = bpf::open_pinned(&pin) else {
            return false;
        };
        if bpf::update_link(link.as_fd(), self.nic_program()).is_ok() {
            return true;
        }
        let _ = fs::remove_file(pin);
        false
    }

    fn attach_nic(&mut self) -> Result<(), DataplaneError> {
        let name = &self.options.interface;
        let modes: &[(XdpMode, u32, &str)] = match self.mode {
            XdpMode::Native => &[(XdpMode::Native, NATIVE, "native")],
            XdpMode::Generic => &[(XdpMode::Generic, GENERIC, "generic")],
            XdpMode::Auto => &[
                (XdpMode::Native, NATIVE, "native"),
                (XdpMode::Generic, GENERIC, "generic"),
            ],
        };
        let mut refusals = Vec::new();
        for &(mode, flags, title) in modes {
            match bpf::link(self.nic_program(), self.nic.index, flags) {
                Ok(link) => {
                    self.mode = mode;
                    return bpf::pin(&link, &self.pin("link_nic"))
                        .map_err(|errno| DataplaneError::io("BPF_OBJ_PIN of the link", errno));
                }
                Err(Errno::BUSY | Errno::EXIST) => {
                    let why = "another XDP program is attached (see `ip link`)".to_owned();
                    return Err(DataplaneError::refused(name, why));
                }
                Err(errno) => refusals.push(format!("{title} XDP: {errno}")),
            }
        }
        Err(DataplaneError::refused(name, refusals.join("; ")))
    }

    fn recover_mode(&mut self) {
        if let Ok(note) = channel::note(&self.maps) {
            self.mode = match note & channel::NOTE_GENERIC {
                0 => XdpMode::Native,
                _ => XdpMode::Generic,
            };
        }
    }

    /// Updates the programs of devices in use, and removes remains of others.
    fn recover_devices(&mut self) -> Result<(), DataplaneError> {
        let mut left = Vec::new();
        for device in 0..SLOTS as u16 {
            let mut bytes = [0; SlotValue::BYTES];
            let number = u32::from(device).to_ne_bytes();
            self.maps
                .map("slots")?
                .lookup(&number, &mut bytes)
                .map_err(|errno| DataplaneError::io("map slots", errno))?;
            let value = SlotValue::decode(&bytes);
            if value.owner == 0 {
                left.push(device);
                continue;
            }
            let context = ((value.note & 0xffff) as u16, (value.note >> 16) as u16);
            self.devices.insert(context, device);
            self.cookies.insert(context, value.cookie);
            self.bulk_recover(Some(device));
            let ends = [("near", &self.maps.egress), ("far", &self.maps.far)];
            for (end, program) in ends {
                // A device without its link is useless, and its application receives nothing.
                if let Ok(link) = bpf::open_pinned(&self.pin(&format!("link_{end}{device}"))) {
                    let _ = bpf::update_link(link.as_fd(), program.as_fd());
                }
            }
        }
        self.bulk_recover(None);
        self.recover_kept_ledgers();
        self.remove_left(&left);
        self.recover_claims()
    }

    /// A service that was killed while it made or removed a virtual port has left a part of it,
    /// which no slot names.
    fn remove_left(&self, devices: &[u16]) {
        for &device in devices {
            self.bulk_remove(device);
            self.unpin(device);
        }
        let _ = self.namespace.run(|| {
            for &device in devices {
                // Most devices are not there.
                let _ = veth::remove(near_index(device));
            }
            Ok(())
        });
    }

    /// Reads the entries of `claims`, so that they can be set and removed.
    fn recover_claims(&mut self) -> Result<(), DataplaneError> {
        let keys = self
            .maps
            .map("claims")?
            .keys()
            .map_err(|errno| DataplaneError::io("keys of map claims", errno))?;
        for key in keys {
            let Some(endpoint) = layout::place_of(&key) else {
                continue;
            };
            let mut value = [0; 40];
            if self.maps.map("claims")?.lookup(&key, &mut value).is_err() {
                continue;
            }
            let (slot, devices) = layout::claim_of(&value);
            let contexts = self
                .devices
                .iter()
                .filter(|((of, _), device)| *of == slot && devices.contains(device))
                .map(|((_, context), _)| *context)
                .collect();
            let entry = super::ClaimEntry {
                slot,
                contexts,
                tracks: layout::tracks(&value),
            };
            self.claims.insert(endpoint, entry);
            *self.claims_at.entry(endpoint.port()).or_default() += 1;
        }
        Ok(())
    }
}
