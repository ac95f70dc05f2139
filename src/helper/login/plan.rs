//! Plans a login to the chosen job: its containment, variables and probes.

use super::containment::{JobContainment, Planner, refuse_configuration};
use super::environment::{list_nameable_gpus, login_variables};
use super::evidence::Evidence;
use super::refusal::LoginRefusal;
use crate::jobs::records::{LoginTarget, NamedGpu};
use crate::node::{DeviceError, gpu_count};
use protocol::{Allowlist, ChoiceRule, JobId, Placement, Plan, Probe, Request};

/// The result of planning a login, and what led to it.
pub(super) struct PlannedLogin {
    /// The plan, with warnings for the log.
    pub(super) result: Result<(Plan, Vec<String>), LoginRefusal>,
    pub(super) evidence: Evidence,
}

impl Planner<'_> {
    /// Plans the login to the job that `rule` has chosen. It is refused if a registered job has no record of its
    /// devices, if this node cannot resolve the devices, or if they exceed an allowlist.
    pub(super) fn plan_login(mut self, rule: ChoiceRule, request: &Request) -> PlannedLogin {
        let result = self.make_plan(rule, request);
        PlannedLogin {
            result,
            evidence: self.evidence,
        }
    }

    /// Makes the plan, with warnings for the log, and notes in the evidence what it contains.
    ///
    /// # Errors
    ///
    /// [`LoginRefusal`] if the containment cannot be decided. Variables and probes that cannot be had are warnings.
    fn make_plan(
        &mut self,
        rule: ChoiceRule,
        request: &Request,
    ) -> Result<(Plan, Vec<String>), LoginRefusal> {
        let (job_containment, mut probes) = self.contain(&request.unit)?;
        let JobContainment {
            containment,
            dropped,
            mut warnings,
        } = job_containment;
        let mut variables = login_variables(self.job, self.config.env, &containment);
        if self.config.env.names_gpus() {
            match self.list_nameable_gpus() {
                // The names go into the probes, and the prolog's lists that these replace leave `variables`: the
                // privileged half lists the GPUs that the login can open.
                Ok(gpus) => probes = variables.name_gpus(probes, &gpus, self.job, &containment),
                Err(why) => warnings.push(format!("env: no GPU is named: {why}")),
            }
        }
        warnings.extend(variables.warnings);
        // GPUs are counted only in a list that a record gives; else the number is 0, which the user is not told. The
        // allowlist of a Slurm job without a record (`slurm_devices = closed`) has all of Slurm's GPUs: which of them
        // are the job's, only Slurm's own filter knows.
        let counted_list = if self.job.has_device_list() {
            containment.list()
        } else {
            None
        };
        let namespaces = self.find_pinned_record(&mut warnings);
        let plan = Plan {
            job: self.job.id.clone(),
            rule,
            placement: self.job.placement.clone(),
            ends: self.job.ends,
            gpus: counted_list.map_or(0, gpu_count),
            containment,
            limits: self.config.login_limits,
            end_grace: self.config.end_grace,
            namespaces,
            probes,
            dropped,
            env: variables.variables,
        };
        self.add_plan(&plan);
        Ok((plan, warnings))
    }

    /// Lists the GPUs of the node that can be named, as the record has them or, without its numbers, as they are.
    ///
    /// # Errors
    ///
    /// The GPUs of the node cannot be listed.
    fn list_nameable_gpus(&self) -> Result<Vec<NamedGpu>, DeviceError> {
        let record = self.job.record_of_devices();
        match record.and_then(|record| record.resolved.as_ref()) {
            Some(list) => Ok(list.gpus.clone()),
            None => list_nameable_gpus(&self.resolver.tree),
        }
    }

    /// Finds the record whose mount namespace, pinned by `register`, the login joins. `None` if the record has no
    /// `namespaces`; if the job's place is the registered cgroup, which names its namespace by an attribute of its own;
    /// and, with a warning, if a scheduler places the login although the record names a cgroup.
    ///
    /// In this last case the mounts belong to the record's cgroup, and the login goes to the scheduler's. That is no
    /// refusal: `register` cannot know such a record to be wrong, since the scheduler may start the job later.
    fn find_pinned_record(&self, warnings: &mut Vec<String>) -> Option<JobId> {
        let record = self.job.record.as_ref()?;
        let path = record.namespaces.as_ref()?;
        if matches!(self.job.placement, Placement::Cgroup { .. }) {
            return None;
        }
        if matches!(record.target, LoginTarget::Via(_)) {
            return Some(record.id.clone());
        }
        warnings.push(format!(
            "job {}: {} places the login, and the mounts of {path} count for the cgroup of the record alone: register it \
             with via",
            self.job.id,
            self.job.placement.source()
        ));
        None
    }

    /// Decides the containment by the source of the job, and which device nodes to probe: none but for Slurm, whose
    /// own filter alone knows which GPUs are the job's. `unit` is the text of a Flux job's unit.
    fn contain(&mut self, unit: &str) -> Result<(JobContainment, Vec<Probe>), LoginRefusal> {
        let job = self.job;
        match (&job.placement, &job.record) {
            (Placement::Unit { .. }, _) => Ok((self.contain_by_flux(unit)?, Vec::new())),
            (Placement::Extern { .. }, _) => self.contain_by_slurm(),
            (Placement::Cgroup { .. }, Some(record)) => {
                Ok((self.contain_by_record(record)?, Vec::new()))
            }
            (Placement::Cgroup { .. }, None) => {
                let cause = format!("job {}: no record says what devices it has", job.id);
                Err(refuse_configuration(&job.id, cause))
            }
        }
    }

    /// Adds what the plan contains to the evidence.
    fn add_plan(&mut self, plan: &Plan) {
        self.evidence.add("containment", plan.containment.as_str());
        if let Some(list) = plan.containment.list() {
            self.evidence.add("devices", format_rules(list));
        }
        self.evidence.add_all("dropped", &plan.dropped);
        self.evidence.add_all("env", plan.env.iter());
        self.evidence.add_all("probe", &plan.probes);
    }
}

/// The entries of a list in their numeric form, with blanks between them.
fn format_rules(list: &Allowlist) -> String {
    let rules: Vec<String> = list.rules().iter().map(ToString::to_string).collect();
    rules.join(" ")
}
