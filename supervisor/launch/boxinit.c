// SPDX-License-Identifier: Apache-2.0
/*
 * boxinit - process 1 of a trial's pid namespace.
 *
 * In:  argv[1], the number of a descriptor with the configuration: NUL-terminated strings in the order of read_config().
 *      Two SOCK_SEQPACKET sockets to the supervisor, one for this process and one for the child that becomes CMD.
 * Out: messages on these sockets. They steer the supervisor's terminal and its waiting; nothing they say is evidence.
 *
 * What it keeps:
 *  - CMD starts as the run user, without a capability in any set and without a way to get one, with default signals,
 *    an empty signal mask, no descriptor above 2, and argv and environment as given.
 *  - This process cannot be traced or read by the trial: it is not dumpable, and its own argv and environment hold
 *    nothing but a number. It holds no descriptor of the user's, so that a reader of CMD's output sees its end.
 *  - It dies with the supervisor (end of file on its socket), and the kernel then kills the whole pid namespace.
 *
 * The canary acts prove to the witness outside that the box holds: they are made by CMD's process before it is released,
 * and by this one after its last child. Their results are not looked at here; the witness sees them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

#define FIRST_KEPT 100 /* those of the configuration are below; they are moved to here, and all others are closed */
#define STDIO_PTY (-1)
#define STDIO_CLOSED (-2)

struct config {
	int init_socket;
	int main_socket;
	int stdio[3]; /* a descriptor, STDIO_PTY or STDIO_CLOSED */
	uid_t uid;
	gid_t gid;
	int n_groups;
	gid_t *groups;
	int foreground; /* CMD owns the terminal from the start, instead of when it asks for it */
	struct winsize size;
	const char *cwd;
	const char *log_canary;
	const char *marker;
	char **argv;
	char **envp;
};

static int report_socket = -1;

static void send_message(int socket, const char *text, int passed)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passed >= 0) {
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static void __attribute__((noreturn)) fail(const char *step)
{
	char text[128];

	snprintf(text, sizeof(text), "error %d %s", errno, step);
	send_message(report_socket, text, -1);
	_exit(125);
}

static char *read_all(int fd)
{
	struct stat st;
	size_t done = 0;
	ssize_t got;
	char *bytes;

	if (fstat(fd, &st) < 0 || !(bytes = calloc(1, st.st_size + 1)))
		_exit(125);
	while ((got = pread(fd, bytes + done, st.st_size - done, done)) > 0)
		done += got;
	return bytes;
}

static char *next_word(char **cursor)
{
	char *word = *cursor;

	*cursor += strlen(word) + 1;
	return word;
}

static long next_number(char **cursor)
{
	return strtol(next_word(cursor), NULL, 10);
}

static char **next_words(char **cursor)
{
	long count = next_number(cursor);
	char **words = calloc(count + 1, sizeof(*words));

	for (long i = 0; words && i < count; i++)
		words[i] = next_word(cursor);
	return words;
}

static void read_config(struct config *c, char *cursor)
{
	c->init_socket = next_number(&cursor);
	c->main_socket = next_number(&cursor);
	for (int i = 0; i < 3; i++)
		c->stdio[i] = next_number(&cursor);
	c->uid = next_number(&cursor);
	c->gid = next_number(&cursor);
	c->n_groups = next_number(&cursor);
	c->groups = calloc(c->n_groups + 1, sizeof(gid_t));
	for (int i = 0; i < c->n_groups; i++)
		c->groups[i] = next_number(&cursor);
	c->foreground = next_number(&cursor);
	c->size.ws_row = next_number(&cursor);
	c->size.ws_col = next_number(&cursor);
	c->cwd = next_word(&cursor);
	c->log_canary = next_word(&cursor);
	c->marker = next_word(&cursor);
	c->argv = next_words(&cursor);
	c->envp = next_words(&cursor);
}

static int keep(int fd)
{
	return fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_KEPT);
}

/* What was inherited from bubblewrap is closed without knowing what it is. */
static void keep_only_ours(struct config *c)
{
	int null;

	syscall(SYS_close_range, FIRST_KEPT, ~0U, 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->init_socket = keep(c->init_socket);
	c->main_socket = keep(c->main_socket);
	report_socket = c->init_socket;
	for (int i = 0; i < 3; i++)
		c->stdio[i] = keep(c->stdio[i]);
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			fail("open /dev/null");
	if (syscall(SYS_close_range, 3, FIRST_KEPT - 1, 0) < 0)
		fail("close inherited descriptors");
}

static void become_run_user(const struct config *c)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
				   SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
				   SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			fail("drop the bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		fail("clear ambient capabilities");
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		fail("lock secure bits");
	if (setgroups(c->n_groups, c->groups) < 0)
		fail("set groups");
	if (setresgid(c->gid, c->gid, c->gid) < 0)
		fail("set the group");
	if (setresuid(c->uid, c->uid, c->uid) < 0)
		fail("set the user");
	if (syscall(SYS_capset, &header, none) < 0)
		fail("drop capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("set no_new_privs");
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
		fail("find the system call filter in force");
	/* After the change of user, which would reset both. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		fail("become undumpable");
	prctl(PR_SET_NAME, "boxinit", 0, 0, 0);
}

/*
 * A dump of core is written by the kernel, and no call tells of it: into a file where the process is, or, where
 * core_pattern begins with '|', to a helper outside the box, as the host's root. A limit of exactly 1 is what the kernel
 * takes as "do not" for both (fs/coredump.c); 0 does not stop a helper. Whoever started us has set it, and the system
 * call filter keeps it as it is.
 */
static void find_cores_forbidden(void)
{
	struct rlimit limit;
	char first = 0;
	int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, &first, 1) < 0)
		fail("read core_pattern");
	close(fd);
	if (getrlimit(RLIMIT_CORE, &limit) < 0)
		fail("read the limit of core dumps");
	if (limit.rlim_max != 1 && (limit.rlim_max || first == '|')) {
		errno = EPERM;
		fail("find core dumps forbidden");
	}
}

#define NOTIFY_DIRECTORY "/run/supervise"
#define NOTIFY_PATH NOTIFY_DIRECTORY "/notify"

/*
 * Where the trial may leave notes. The socket is made in here, so that its peer is one of the box's own and no way out;
 * only its receiving end is handed to the supervisor. Before the change of user: /run belongs to root.
 */
static int open_notify(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = NOTIFY_PATH };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || mkdir(NOTIFY_DIRECTORY, 0755) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || chmod(NOTIFY_PATH, 0666) < 0)
		fail("open a place for notes");
	return fd;
}

static int wants_pty(const struct config *c)
{
	return c->stdio[0] == STDIO_PTY || c->stdio[1] == STDIO_PTY || c->stdio[2] == STDIO_PTY;
}

/*
 * The terminal is made in here, so that its name exists in the box. The slave end stays open in this process:
 * the master then sees no hang-up while a daemon that closed it may open it again.
 */
static int open_terminal(const struct config *c, int *master)
{
	int unlock = 0, slave;

	*master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*master < 0 || ioctl(*master, TIOCSPTLCK, &unlock) < 0)
		fail("open a terminal");
	slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		fail("open a terminal");
	slave = keep(slave);
	ioctl(slave, TIOCSWINSZ, &c->size);
	if (ioctl(slave, TIOCSCTTY, 0) < 0)
		fail("take the terminal");
	return slave;
}

static void act_canary(const struct config *c)
{
	const struct sockaddr_in nowhere = {
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc0000201), /* 192.0.2.1 */
	};
	const struct timeval patience = { .tv_sec = 2 };
	int fd;

	fd = open(c->log_canary, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	fd = open("/proc/sys/kernel/core_pattern", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	fd = creat(c->marker, 0600);
	if (fd >= 0) {
		close(fd);
		unlink(c->marker);
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		connect(fd, (const struct sockaddr *)&nowhere, sizeof(nowhere));
		close(fd);
	}
}

static void wait_for_go(int socket)
{
	char text[8];
	ssize_t got;

	do
		got = recv(socket, text, sizeof(text), 0);
	while (got < 0 && errno == EINTR);
	if (got != 2 || memcmp(text, "go", 2))
		_exit(125);
}

#define KERNEL_SIGSET 8

/* The calls themselves: libc keeps two signals of its own from being reset, whatever state they were inherited in. */
static void reset_signals(void)
{
	static const char none[64];	/* struct sigaction of the kernel, and its sigset_t: all default, all clear */

	for (int n = 1; n < NSIG; n++)
		syscall(SYS_rt_sigaction, n, none, NULL, KERNEL_SIGSET);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, none, NULL, KERNEL_SIGSET);
}

static void set_stdio(const struct config *c, int slave)
{
	for (int i = 0; i < 3; i++) {
		if (c->stdio[i] == STDIO_CLOSED)
			close(i);
		else if (dup2(c->stdio[i] == STDIO_PTY ? slave : c->stdio[i], i) < 0)
			fail("set standard streams");
	}
}

static void __attribute__((noreturn)) become_cmd(const struct config *c, int slave)
{
	int error;

	report_socket = c->main_socket;
	close(c->init_socket);
	setpgid(0, 0);
	prctl(PR_SET_NAME, "boxmain", 0, 0, 0);
	if (chdir(c->cwd) < 0)
		fail("enter the working directory");
	act_canary(c);
	send_message(c->main_socket, "ready", -1);
	wait_for_go(c->main_socket);
	reset_signals();
	set_stdio(c, slave);
	syscall(SYS_close_range, 3, ~0U, 0);
	environ = c->envp;
	execvp(c->argv[0], c->argv);
	error = errno;
	if (error == ENOENT && !strchr(c->argv[0], '/'))
		dprintf(2, "supervise: %s: command not found\n", c->argv[0]);
	else
		dprintf(2, "supervise: %s: %s\n", c->argv[0], strerror(error));
	_exit(error == ENOENT ? 127 : 126);
}

static void give_terminal(int slave, pid_t pid)
{
	if (slave >= 0)
		ioctl(slave, TIOCSPGRP, &pid);
}

/* Returns 0 when no child is left. Only CMD itself is reported: the others belong to somebody inside. */
static int reap(const struct config *c, pid_t cmd)
{
	char text[32];
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
		if (pid != cmd)
			continue;
		if (WIFSTOPPED(status)) {
			snprintf(text, sizeof(text), "stopped %d", WSTOPSIG(status));
			send_message(c->init_socket, text, -1);
		} else if (WIFCONTINUED(status)) {
			send_message(c->init_socket, "continued", -1);
		}
	}
	return !(pid < 0 && errno == ECHILD);
}

static void obey(const struct config *c, pid_t cmd, int slave)
{
	char text[32] = "";
	ssize_t got = recv(c->init_socket, text, sizeof(text) - 1, MSG_DONTWAIT);

	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		_exit(125);
	if (got > 0 && !strcmp(text, "foreground")) {
		give_terminal(slave, cmd);
		kill(-cmd, SIGCONT);
	}
}

static void watch(const struct config *c, pid_t cmd, int slave, int signals)
{
	struct pollfd sources[] = { { signals, POLLIN, 0 }, { c->init_socket, POLLIN, 0 } };
	struct signalfd_siginfo drained[8];

	while (reap(c, cmd)) {
		if (poll(sources, 2, -1) < 0)
			continue;
		if (sources[0].revents && read(signals, drained, sizeof(drained)) < 0)
			continue;
		if (sources[1].revents)
			obey(c, cmd, slave);
	}
}

int main(int argc, char **argv)
{
	struct config c = { 0 };
	int slave = -1, master = -1, signals, notes;
	sigset_t wanted;
	pid_t cmd;

	if (argc != 2)
		return 125;
	read_config(&c, read_all(atoi(argv[1])));
	keep_only_ours(&c);
	find_cores_forbidden();
	notes = open_notify();
	become_run_user(&c);
	sigfillset(&wanted);
	sigprocmask(SIG_SETMASK, &wanted, NULL);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || setsid() < 0)
		fail("start a session");
	if (wants_pty(&c))
		slave = open_terminal(&c, &master);
	send_message(c.init_socket, "notes", notes);
	close(notes);
	send_message(c.init_socket, "init", master);
	if (master >= 0)
		close(master);
	cmd = fork();
	if (cmd < 0)
		fail("fork");
	if (cmd == 0)
		become_cmd(&c, slave);
	setpgid(cmd, cmd);
	if (c.foreground)
		give_terminal(slave, cmd);
	close(c.main_socket);
	for (int i = 0; i < 3; i++)
		if (c.stdio[i] >= 0)
			close(c.stdio[i]);
	watch(&c, cmd, slave, signals);
	act_canary(&c);
	return 0;
}
