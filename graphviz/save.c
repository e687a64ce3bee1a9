/* Writing a document to a file, whole or not at all. Paths are bytes. */
#define _POSIX_C_SOURCE 200809L

#include "documents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40, MOST_NAMES = 1000, NAME_ROOM = 48 };

/* TGD_EIO that names the path in clean UTF-8. */
static tgd_status fail_path(tgd_error *err, int os_errno, const char *what, const char *path)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_line(&words, path, 200);
    tgd_text_bytes(&words, "", 1);
    tgd_status status = tgd_fail_io(err, os_errno, "%s '%s'", what, words.status == TGD_OK ? words.bytes : "?");
    tgd_text_drop(&words);
    return status;
}

static int write_all(void *context, const char *bytes, size_t n)
{
    int fd = *(int *)context;
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

/* The report through fd, which is closed. */
static tgd_status write_to(const tgd_report *report, tgd_format format, const tgd_view *view, int fd, const char *path,
                           tgd_error *err)
{
    tgd_error reason = {TGD_OK, 0, ""};
    tgd_status status = tgd_report_write_view(report, format, view, write_all, &fd, &reason);
    int closed = close(fd);
    int close_errno = errno;
    if (status == TGD_EIO) {
        return fail_path(err, reason.os_errno, "cannot write", path);
    }
    if (status != TGD_OK) {
        if (err != NULL) {
            *err = reason;
        }
        return status;
    }
    /* after EINTR the descriptor is closed, and the kernel still writes what it was given */
    return closed != 0 && close_errno != EINTR ? fail_path(err, close_errno, "cannot write", path) : TGD_OK;
}

/* Is this a name for a stream that is already open, such as /dev/stdout? */
static bool names_a_stream(const char *path)
{
    static const char *const streams[] = {"/dev/std", "/dev/fd/", "/proc/"};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        if (strncmp(path, streams[i], strlen(streams[i])) == 0) {
            return true;
        }
    }
    return false;
}

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* The text of a symbolic link, to be freed; NULL with errno. */
static char *read_link(const char *path)
{
    for (size_t size = 256;; size *= 2) {
        char *text = malloc(size);
        if (text == NULL) {
            errno = ENOMEM;
            return NULL;
        }
        ssize_t n = readlink(path, text, size);
        if (n >= 0 && (size_t)n < size) {
            text[n] = '\0';
            return text;
        }
        int why = errno;
        free(text);
        if (n < 0) {
            errno = why;
            return NULL;
        }
    }
}

/* Where a path leads when its last part is a link, or a chain of them: the file that is to be replaced, which need
   not exist. To be freed; NULL with errno. */
static char *follow_links(const char *path)
{
    char *at = malloc(strlen(path) + 1);
    if (at == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(at, path, strlen(path) + 1);
    for (int links = 0;; links++) {
        struct stat info;
        if (lstat(at, &info) != 0 || !S_ISLNK(info.st_mode)) {
            return at;
        }
        char *text = links < MOST_LINKS ? read_link(at) : NULL;
        size_t folder = text != NULL && text[0] != '/' ? folder_length(at) : 0;
        char *next = text == NULL ? NULL : malloc(folder + strlen(text) + 1);
        int why = links >= MOST_LINKS ? ELOOP : text == NULL ? errno : ENOMEM;
        if (next != NULL) {
            memcpy(next, at, folder);
            memcpy(next + folder, text, strlen(text) + 1);
        }
        free(text);
        free(at);
        if (next == NULL) {
            errno = why;
            return NULL;
        }
        at = next;
    }
}

/* A new file in the folder of `target`; *name is to be freed. -1 with errno. */
static int create_beside(const char *target, char **name)
{
    size_t folder = folder_length(target);
    char *at = malloc(folder + NAME_ROOM);
    if (at == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(at, target, folder);
    for (unsigned number = 0; number < MOST_NAMES; number++) {
        snprintf(at + folder, NAME_ROOM, ".torchgraphdbg-%ld-%u", (long)getpid(), number);
        int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            *name = at;
            return fd;
        }
        if (errno != EEXIST && errno != EINTR) {
            break;
        }
    }
    int why = errno;
    free(at);
    errno = why;
    return -1;
}

/* The new file becomes what the old one was: same mode, and same owner where that is allowed. */
static int take_over_mode(int fd, const struct stat *old)
{
    struct stat now;
    if (fstat(fd, &now) != 0) {
        return -1;
    }
    if ((now.st_uid != old->st_uid || now.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) != 0) {
        /* not ours to give away: the file then belongs to who wrote it */
        errno = 0;
    }
    return fchmod(fd, old->st_mode & 07777);
}

static tgd_status replace_file(const tgd_report *report, const char *path, const char *target, const struct stat *old,
                               tgd_format format, const tgd_view *view, tgd_error *err)
{
    char *fresh = NULL;
    int fd = create_beside(target, &fresh);
    if (fd < 0) {
        return errno == ENOMEM ? tgd_fail_memory(err) : fail_path(err, errno, "cannot write", path);
    }
    tgd_status status = TGD_OK;
    if (old != NULL && take_over_mode(fd, old) != 0) {
        status = fail_path(err, errno, "cannot write", path);
        close(fd);
    } else {
        status = write_to(report, format, view, fd, path, err);
    }
    if (status == TGD_OK && rename(fresh, target) != 0) {
        status = fail_path(err, errno, "cannot replace", path);
    }
    if (status != TGD_OK) {
        unlink(fresh);
    }
    free(fresh);
    return status;
}

tgd_status tgd_report_save(const tgd_report *report, const char *path, tgd_format format, tgd_error *err)
{
    return tgd_report_save_view(report, path, format, NULL, err);
}

tgd_status tgd_report_save_view(const tgd_report *report, const char *path, tgd_format format, const tgd_view *view,
                                tgd_error *err)
{
    if (path == NULL || path[0] == '\0') {
        return tgd_fail(err, TGD_EINVAL, "path is empty");
    }
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        return fail_path(err, EISDIR, "cannot write", path);
    }
    if (exists && (!S_ISREG(info.st_mode) || names_a_stream(path))) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
        return fd < 0 ? fail_path(err, errno, "cannot write", path) : write_to(report, format, view, fd, path, err);
    }
    if (exists && access(path, W_OK) != 0) {
        return fail_path(err, errno, "cannot write", path);
    }
    char *target = follow_links(path);
    if (target == NULL) {
        return errno == ENOMEM ? tgd_fail_memory(err) : fail_path(err, errno, "cannot write", path);
    }
    tgd_status status;
    if (target[folder_length(target)] == '\0') { /* "folder/" of a folder that is not there */
        status = fail_path(err, ENOENT, "cannot write", path);
    } else {
        status = replace_file(report, path, target, exists ? &info : NULL, format, view, err);
    }
    free(target);
    return status;
}
