//! Many logins at once, as a launcher starts its ranks.

use crate::support::{ALICE, BOB, LOOK, on_node};

#[test]
fn sixty_four_logins_at_once_leave_one_filter() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        std::thread::scope(|scope| {
            let logins: Vec<_> = (0..64).map(|_| scope.spawn(|| sshd.ssh(ALICE, LOOK))).collect();
            for login in logins {
                login.join().unwrap().ok().stands_in(&job.cgroup);
            }
        });
        let filters = job.cgroup.filters();
        assert_eq!(filters.len(), 1, "{filters:?}");
        assert!(job.cgroup.children().is_empty());
    });
}

#[test]
fn logins_of_two_users_do_not_meet() {
    on_node(|node| {
        node.reporting("");
        let hers = node.job(ALICE, "1").devices(&["/dev/nvidia0"]).start();
        let his = node.job(BOB, "2").devices(&["/dev/nvidia1"]).start();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| node.pam(ALICE).ok().stands_in(&hers.cgroup));
                scope.spawn(|| node.pam(BOB).ok().stands_in(&his.cgroup));
            }
        });
        assert_eq!((hers.cgroup.filters().len(), his.cgroup.filters().len()), (1, 1));
    });
}
