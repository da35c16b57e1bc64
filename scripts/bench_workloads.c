/*
 * The workloads of the overhead benchmark, as one program. Each prints the nanoseconds that it took itself, so that
 * what a supervisor costs at its start and end stays out of the figure.
 *
 *   workloads loop N       N times: open a file for writing, write 4 KiB over it, close it
 *   workloads paced N      N times the same, 5000 times a second
 *   workloads forks N      N times: fork a child that ends at once, wait for it
 *   workloads getppid N    N times the cheapest call there is
 *   workloads tree N M     make N directories with M small files each
 *   workloads time CMD...  run CMD and wait for it; its output goes to stderr
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int run_loop(long count)
{
	static char block[4096];

	for (long i = 0; i < count; i++) {
		int fd = open("written", O_WRONLY | O_CREAT, 0644);

		if (fd < 0 || write(fd, block, sizeof(block)) != (ssize_t)sizeof(block) || close(fd))
			return 1;
	}
	return 0;
}

static int run_paced(long count)
{
	struct timespec due;

	clock_gettime(CLOCK_MONOTONIC, &due);
	for (long i = 0; i < count; i += 50) {
		if (run_loop(50))
			return 1;
		due.tv_nsec += 10000000;
		if (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
	return 0;
}

static int run_tree(long directories, long files)
{
	static char text[1200];
	char name[64];

	memset(text, 'x', sizeof(text));
	if (mkdir("packages", 0755))
		return 1;
	for (long d = 0; d < directories; d++) {
		snprintf(name, sizeof(name), "packages/%ld", d);
		if (mkdir(name, 0755))
			return 1;
		for (long f = 0; f < files; f++) {
			snprintf(name, sizeof(name), "packages/%ld/module-%ld.js", d, f);
			int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);

			if (fd < 0 || write(fd, text, sizeof(text)) != (ssize_t)sizeof(text) || close(fd))
				return 1;
		}
	}
	return 0;
}

static int run_forks(long count)
{
	for (long i = 0; i < count; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	return 0;
}

static int run_getppid(long count)
{
	for (long i = 0; i < count; i++)
		syscall(SYS_getppid);
	return 0;
}

static int run_command(char **argv)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		dup2(2, 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	long long started = now_ns();
	int failed = 2;

	if (argc < 3)
		return failed;
	if (!strcmp(argv[1], "loop"))
		failed = run_loop(atol(argv[2]));
	else if (!strcmp(argv[1], "paced"))
		failed = run_paced(atol(argv[2]));
	else if (!strcmp(argv[1], "forks"))
		failed = run_forks(atol(argv[2]));
	else if (!strcmp(argv[1], "getppid"))
		failed = run_getppid(atol(argv[2]));
	else if (!strcmp(argv[1], "tree") && argc > 3)
		failed = run_tree(atol(argv[2]), atol(argv[3]));
	else if (!strcmp(argv[1], "time"))
		failed = run_command(argv + 2);
	if (!failed)
		printf("%lld\n", now_ns() - started);
	return failed;
}
