/* Saving to a file: whole or not at all, and what stood there before still stands when it fails. */
#define _POSIX_C_SOURCE 200809L

#include "models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[512];

static const char *in_folder(const char *name)
{
    static char paths[4][1100];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static tgd_report *begin(void)
{
    static model m;
    const char *parent = getenv("TGD_TEST_OUT");
    snprintf(folder, sizeof folder, "%.480s/save-XXXXXX", parent != NULL ? parent : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    model_residual(&m, 3, 1);
    return model_report(&m);
}

/* Nothing but what the test made is in the folder. */
static void end(tgd_report *report, int files)
{
    DIR *dir = opendir(folder);
    int found = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        found += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    CHECK_INT(found, files);
    char command[2048];
    snprintf(command, sizeof command, "chmod -R u+rwx '%s' && rm -rf '%s'", folder, folder);
    CHECK_INT(system(command), 0);
    tgd_report_free(report);
    fake_reset();
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static bool holds(const char *path, const char *text)
{
    char buffer[64] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    size_t n = fread(buffer, 1, sizeof buffer - 1, file);
    buffer[n] = '\0';
    fclose(file);
    return strncmp(buffer, text, strlen(text)) == 0;
}

static void fails(const tgd_report *report, const char *path, int os_errno)
{
    tgd_error err = {0};
    CHECK_INT(tgd_report_save(report, path, TGD_FORMAT_SVG, &err), TGD_EIO);
    CHECK_INT(err.os_errno, os_errno);
    CHECK(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
}

static void new_files(void)
{
    tgd_report *report = begin();
    mode_t mask = umask(027);
    static const char *const names[] = {"a.svg", "b.json", "c.gv", "d.txt", "\xff\xfe \xe6\x97\xa5.svg", ".svg"};
    static const char *const starts[] = {"<svg ", "{", "digraph", "torchgraphdbg:", "<svg ", "<svg "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tgd_format format;
        struct stat info;
        const char *path = in_folder(names[i]);
        CHECK_INT(tgd_format_of_path(&format, path, NULL), TGD_OK);
        CHECK_INT(tgd_report_save(report, path, format, NULL), TGD_OK);
        CHECK(holds(path, starts[i]));
        CHECK(stat(path, &info) == 0);
        CHECK_INT(info.st_mode & 0777, 0640);
    }
    umask(mask);
    end(report, 6);
}

static void files_that_are_there(void)
{
    tgd_report *report = begin();
    struct stat info;
    put(in_folder("old.svg"), "old");
    CHECK_INT(chmod(in_folder("old.svg"), 0604), 0);
    CHECK_INT(tgd_report_save(report, in_folder("old.svg"), TGD_FORMAT_SVG, NULL), TGD_OK);
    CHECK(holds(in_folder("old.svg"), "<svg "));
    CHECK(stat(in_folder("old.svg"), &info) == 0);
    CHECK_INT(info.st_mode & 0777, 0604);

    CHECK_INT(mkdir(in_folder("other"), 0777), 0);
    put(in_folder("other/target.svg"), "old");
    CHECK_INT(symlink("other/target.svg", in_folder("link.svg")), 0);
    CHECK_INT(symlink("link.svg", in_folder("link2.svg")), 0);
    CHECK_INT(tgd_report_save(report, in_folder("link2.svg"), TGD_FORMAT_SVG, NULL), TGD_OK);
    CHECK(lstat(in_folder("link2.svg"), &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(lstat(in_folder("link.svg"), &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(holds(in_folder("other/target.svg"), "<svg "));

    CHECK_INT(symlink("other/new.svg", in_folder("dangling.svg")), 0);
    CHECK_INT(tgd_report_save(report, in_folder("dangling.svg"), TGD_FORMAT_SVG, NULL), TGD_OK);
    CHECK(holds(in_folder("other/new.svg"), "<svg "));
    end(report, 5);
}

static void places_that_cannot_be_written(void)
{
    tgd_report *report = begin();
    tgd_error err = {0};
    CHECK_INT(mkdir(in_folder("sub.svg"), 0777), 0);
    fails(report, in_folder("sub.svg"), EISDIR);
    fails(report, in_folder("sub.svg/"), EISDIR);
    fails(report, in_folder("none/x.svg"), ENOENT);
    fails(report, in_folder("none/"), ENOENT);
    put(in_folder("file"), "old");
    fails(report, in_folder("file/x.svg"), ENOTDIR);
    CHECK_INT(symlink("loop", in_folder("loop")), 0);
    fails(report, in_folder("loop"), ELOOP);
    CHECK_INT(symlink("none/x.svg", in_folder("lost")), 0);
    fails(report, in_folder("lost"), ENOENT);
    CHECK_INT(tgd_report_save(report, "", TGD_FORMAT_SVG, &err), TGD_EINVAL);
    CHECK_INT(tgd_report_save(report, NULL, TGD_FORMAT_SVG, NULL), TGD_EINVAL);
    if (access("/dev/full", W_OK) == 0) {
        fails(report, "/dev/full", ENOSPC);
    }
    if (geteuid() != 0) { /* root may write anywhere */
        CHECK_INT(mkdir(in_folder("closed"), 0777), 0);
        put(in_folder("closed/x.svg"), "old");
        CHECK_INT(chmod(in_folder("closed"), 0555), 0);
        fails(report, in_folder("closed/x.svg"), EACCES);
        CHECK(holds(in_folder("closed/x.svg"), "old"));
        CHECK_INT(chmod(in_folder("file"), 0444), 0);
        fails(report, in_folder("file"), EACCES);
    }
    CHECK(holds(in_folder("file"), "old"));
    end(report, geteuid() != 0 ? 5 : 4);
}

static void *read_pipe(void *path)
{
    static char begin_of_it[16];
    FILE *file = fopen(path, "r");
    size_t n = fread(begin_of_it, 1, 5, file);
    begin_of_it[n] = '\0';
    while (fgetc(file) != EOF) {
    }
    fclose(file);
    return begin_of_it;
}

static void pipes_and_devices(void)
{
    tgd_report *report = begin();
    pthread_t reader;
    void *begin_of_it = NULL;
    char path[1200];
    struct stat info;
    snprintf(path, sizeof path, "%s", in_folder("pipe.svg"));
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(pthread_create(&reader, NULL, read_pipe, path), 0);
    CHECK_INT(tgd_report_save(report, path, TGD_FORMAT_SVG, NULL), TGD_OK);
    CHECK_INT(pthread_join(reader, &begin_of_it), 0);
    CHECK_STR(begin_of_it, "<svg ");
    CHECK(stat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    CHECK_INT(tgd_report_save(report, "/dev/null", TGD_FORMAT_TEXT, NULL), TGD_OK);
    end(report, 1);
}

/* A report that cannot be drawn for want of a format leaves the old file alone. */
static void failures_leave_the_old_file(void)
{
    tgd_report *report = begin();
    put(in_folder("x.svg"), "old");
    CHECK_INT(tgd_report_save(report, in_folder("x.svg"), (tgd_format)99, NULL), TGD_EINVAL);
    CHECK(holds(in_folder("x.svg"), "old"));
    end(report, 1);
}

static void suffixes(void)
{
    static const struct {
        const char *path;
        int format; /* -1: none */
    } cases[] = {{"x.svg", TGD_FORMAT_SVG},  {"X.SVG", TGD_FORMAT_SVG},        {"a.b/x.Json", TGD_FORMAT_JSON},
                 {"x.svg.gv", TGD_FORMAT_GV}, {"/tmp/.txt", TGD_FORMAT_TEXT},   {"x", -1},
                 {"x.html", TGD_FORMAT_HTML},  {"x.svgz", -1},                   {"x.svg/", -1},
                 {"x.sv", -1},                {"a.svg/x", -1},                  {"", -1},
                 {".", -1},                   {"x.", -1},                     {"x.Trace.JSON", TGD_FORMAT_TRACE},
                 {".trace.json", TGD_FORMAT_JSON},                       {"x.\xff\n<", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tgd_format format = (tgd_format)77;
        tgd_error err = {0};
        tgd_status status = tgd_format_of_path(&format, cases[i].path, &err);
        if (cases[i].format >= 0) {
            CHECK_INT(status, TGD_OK);
            CHECK_INT(format, cases[i].format);
        } else {
            CHECK_INT(status, TGD_EINVAL);
            CHECK_INT(format, 77);
            CHECK_HAS(err.message, ".svg, .html, .json, .trace.json, .gv or .txt");
            CHECK(strchr(err.message, '\n') == NULL);
        }
    }
    tgd_format format;
    CHECK_INT(tgd_format_of_path(&format, NULL, NULL), TGD_EINVAL);
}

CHECK_MAIN(TEST(new_files), TEST(files_that_are_there), TEST(places_that_cannot_be_written), TEST(pipes_and_devices),
           TEST(failures_leave_the_old_file), TEST(suffixes))
