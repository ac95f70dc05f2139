//! Which of a user's jobs an ssh client runs in.

use std::time::Instant;

use super::answer::host_name;
use super::survey::Survey;
use super::{Config, Node};
use crate::callerid::{Ground, holder};
use crate::plan::JobId;
use crate::source::Job;

impl Node {
    /// The running jobs of `uid` here, as far as they can be told until `deadline`, and what may have
    /// hidden others.
    ///
    /// # Errors
    /// Why no source can be asked.
    pub fn running(
        &self,
        config: &Config,
        uid: u32,
        deadline: Instant,
    ) -> Result<(Vec<Job>, Vec<String>), String> {
        let sources = self.sources(&host_name(), config)?;
        let mut survey = Survey::of(&sources, uid, deadline);
        let jobs = std::mem::take(&mut survey.jobs);
        Ok((jobs, survey.warnings()))
    }

    /// The one of these jobs whose cgroup, or one below it, has this id; `None` also where that
    /// cannot be told until `deadline`.
    #[must_use]
    pub fn holder<'a>(&self, jobs: &'a [Job], cgroup: u64, deadline: Instant) -> Option<&'a JobId> {
        let mount = self.cgroup_mount().ok()?;
        holder(jobs, cgroup, Ground { mount: &mount, owner: self.trust.owner(), deadline })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use super::*;
    use crate::trust::tests::Scratch;

    #[test]
    fn a_users_running_jobs_and_the_one_with_a_cgroup() {
        let scratch = Scratch::new();
        for (id, uid) in [("1", 5), ("2", 5), ("3", 6)] {
            scratch.dir(&format!("cg/{id}/x"));
            let record =
                format!(r#"{{"version":1,"id":"{id}","uid":{uid},"cgroup":"/{id}","cdi":[]}}"#);
            scratch.file(&format!("jobs/{uid}/{id}.json"), &record);
        }
        let text = format!("registry = {}\n", scratch.path().join("jobs").display());
        let config = Config::parse(text.as_bytes()).unwrap();
        let cgroups = scratch.path().join("cg");
        let node = Node::laid_out(scratch.path(), scratch.trust(), &cgroups);
        let soon = Instant::now() + Duration::from_secs(5);
        let (jobs, warnings) = node.running(&config, 5, soon).unwrap();
        assert_eq!((jobs.len(), warnings.len()), (2, 0));
        let of = |path: &str| fs::metadata(cgroups.join(path)).unwrap().ino();
        assert_eq!(node.holder(&jobs, of("2/x"), soon).map(JobId::as_str), Some("2"));
        assert_eq!(node.holder(&jobs, of("3/x"), soon), None);
        assert_eq!(node.running(&config, 7, soon).unwrap().0, []);
        scratch.file("jobs/7/4.json", "{");
        assert_eq!(node.running(&config, 7, soon).unwrap().1.len(), 1, "what may hide a job");
    }
}
