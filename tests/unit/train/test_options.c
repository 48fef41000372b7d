/* SPDX-License-Identifier: BSD-3-Clause */
/* Command-line parsing: accepted and rejected options, with the messages. */
#include "unit.h"

#include "train/options.h"
#include "train/records.h"

enum { MOST = 16 };

/* Parses "train_mnist" and the following words; the last argument is NULL. */
static int parse(struct options *options, ...)
{
    char *argv[MOST] = {(char *)"train_mnist"};
    int argc = 1;
    va_list words;

    va_start(words, options);
    while (argc < MOST && (argv[argc] = va_arg(words, char *)))
        argc++;
    va_end(words);
    return options_parse(&task_mnist, argc, argv, options);
}

#define REFUSED(text, ...)                                                                         \
    do {                                                                                           \
        struct options refused_;                                                                   \
        assert_int_equal(parse(&refused_, __VA_ARGS__, NULL), -1);                                 \
        unit_failed_with(text);                                                                    \
    } while (0)

static void test_defaults_are_used(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, NULL), 0);
    assert_null(options.data);
    assert_string_equal(options.arch, "cnn");
    assert_int_equal(options.epochs, 2);
    assert_int_equal(options.batch_size, 64);
    assert_true(options.lr == 1.0);
    assert_int_equal(options.rank, -1);
    assert_int_equal(options.action, OPTIONS_RUN);
}

static void test_values_are_parsed(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "-a", "mlp", "-b128", "--epochs=3", "--lr", "0.5", "-e",
                           "--data", "x", "--dist-backend", "gloo", "--optimizer", "sgd", NULL),
                     0);
    assert_string_equal(options.arch, "mlp");
    assert_int_equal(options.batch_size, 128);
    assert_int_equal(options.epochs, 3);
    assert_true(options.lr == 0.5);
    assert_true(options.evaluate);
    assert_string_equal(options.data, "x");
    assert_string_equal(options.dist_backend, "gloo");
}

static void test_SGD_has_its_own_learning_rate(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "--optimizer", "sgd", NULL), 0);
    assert_true(options.lr == 0.01);
}

/* PyTorch's launchers pass --local_rank=N; underscores in values are kept. */
static void test_underscores_in_names_are_accepted(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "--local_rank=3", "--world_size", "8", "--data", "--my_dir",
                           "--loss_log=a_b", "--multiprocessing_distributed", NULL),
                     0);
    assert_int_equal(options.local_rank, 3);
    assert_int_equal(options.world_size, 8);
    assert_string_equal(options.data, "--my_dir");
    assert_string_equal(options.loss_log, "a_b");
    assert_true(options.spawn);
}

static void test_alternative_names_are_accepted(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "--wd", "0.5", "--print-freq", "7", "-j4", "--no-accel",
                           "--learning-rate=2", NULL),
                     0);
    assert_true(options.weight_decay == 0.5);
    assert_int_equal(options.log_interval, 7);
    assert_true(options.lr == 2.0);
}

static void test_bad_numbers_are_rejected(void **state)
{
    (void)state;
    REFUSED("--epochs: '' is not a whole number", "--epochs", "");
    REFUSED("--epochs: '3x' is not a whole number", "--epochs=3x");
    REFUSED("--epochs: ' 3' is not a whole number", "--epochs", " 3");
    REFUSED("--epochs: -1 is out of range, expected 0 to 1000000", "--epochs", "-1");
    REFUSED("--epochs: 99999999999999999999 is out of range", "--epochs=99999999999999999999");
    REFUSED("--batch-size: 0 is out of range", "-b", "0");
    REFUSED("--port: 65536 is out of range", "--port=65536");
    REFUSED("--rank: 2147483648 is out of range", "--rank=2147483648");
    REFUSED("--timeout: 2147483648 is out of range", "--timeout=2147483648");
    REFUSED("--lr: '0.1.2' is not a number", "--lr=0.1.2");
    REFUSED("--lr: 'nan' is not a number", "--lr=nan");
    REFUSED("--lr: inf is out of range", "--lr=inf");
    REFUSED("--lr: -0.5 is out of range", "--lr=-0.5");
    REFUSED("--momentum: 1.5 is out of range", "--momentum", "1.5");
}

static void test_bad_texts_are_rejected(void **state)
{
    (void)state;
    REFUSED("--data: the value is empty", "--data=");
    REFUSED("--arch: 'resnet' is not one of cnn|mlp", "-a", "resnet");
    REFUSED("--arch: 'cn' is not one of cnn|mlp", "-a", "cn");
    REFUSED("--optimizer: 'adam' is not one of adadelta|sgd", "--optimizer=adam");
    REFUSED("--seed: a value is missing", "--seed");
    REFUSED("unknown or ambiguous option --nonsense", "--nonsense");
    REFUSED("--dry-run=1: takes no value", "--dry-run=1");
    REFUSED("unknown option -z", "-z");
    REFUSED("'extra': unexpected argument", "extra");
}

static void test_contradictory_options_are_rejected(void **state)
{
    (void)state;
    REFUSED("--rank: 8 is out of range: with --world-size 8 the ranks are 0 to 7", "--rank=8",
            "--world-size=8");
    REFUSED("--dist-url and --addr/--port", "--dist-url=env://", "--addr=h");
    REFUSED("--rank has no meaning", "--rank=0", "--multiprocessing-distributed");
    REFUSED("--data and --dummy", "--data=x", "--dummy");
    REFUSED("--evaluate and --dry-run", "-e", "--dry-run");
    REFUSED("--keep has no effect without --checkpoint", "--keep=2", "--resume=x");
    REFUSED("--checkpoint-interval has no effect without --checkpoint", "--checkpoint-interval=2");
}

static void test_help_and_version(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "--help", "--nonsense", NULL), 0);
    assert_int_equal(options.action, OPTIONS_HELP);
    assert_int_equal(parse(&options, "--version", NULL), 0);
    assert_int_equal(options.action, OPTIONS_VERSION);
}

/* The help has the first name of each option, and its lines are short. */
static void test_help_lists_all_options(void **state)
{
    char *text = NULL, option[80];
    size_t size;
    FILE *to = open_memstream(&text, &size);

    (void)state;
    options_help(&task_mnist, to);
    fclose(to);
    for (int i = 0; i < options_args.count; i++) {
        const struct args_row *row = &options_args.rows[i];

        snprintf(option, sizeof(option), "--%.*s", (int)strcspn(row->names, ","), row->names);
        if (row->kind != ARGS_GROUP && !strstr(text, option))
            fail_msg("%s is not in the help", option);
    }
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        const size_t length = strcspn(line, "\n");

        assert_in_range(length, 0, 80);
        assert_true(length == 0 || line[length - 1] != ' ');
    }
    free(text);
}

/* Returns how many options are reported as changed from the default; *name_p is the name of the
 * last one. */
static int count_changed(const struct task *task, int argc, char *argv[], const char **name_p)
{
    static struct record_fact facts[128];
    struct options options;
    int count, changed = 0;

    assert_int_equal(options_parse(task, argc, argv, &options), 0);
    count = options_facts(&options, facts, 128);
    for (int i = 0; i < count; i++)
        if (facts[i].changed) {
            *name_p = facts[i].name;
            changed++;
        }
    return changed;
}

/* The defaults depend on the program. */
static void test_changed_options_are_reported(void **state)
{
    const struct task *const tasks[] = {&task_mnist, &task_cifar10};
    char *argv[] = {(char *)"train", (char *)"--arch=mlp"};
    const char *name = "none";

    (void)state;
    for (int i = 0; i < 2; i++) {
        if (count_changed(tasks[i], 1, argv, &name) != 0)
            fail_msg("%s: --%s is reported as changed", tasks[i]->program, name);
        assert_int_equal(count_changed(tasks[i], 2, argv, &name), 1);
        assert_string_equal(name, "arch");
    }
}

static bool is_reported(int argc, char *argv[], const char *name)
{
    static struct record_fact facts[128];
    struct options options;
    int count;

    assert_int_equal(options_parse(&task_mnist, argc, argv, &options), 0);
    count = options_facts(&options, facts, 128);
    for (int i = 0; i < count; i++)
        if (strcmp(facts[i].name, name) == 0)
            return true;
    return false;
}

/* The default of --log-interval, 0, means ten lines per epoch, so it is not reported as a
 * number. */
static void test_a_default_without_a_number_is_not_reported(void **state)
{
    char *argv[] = {(char *)"train", (char *)"--log-interval=7"};

    (void)state;
    assert_false(is_reported(1, argv, "log-interval"));
    assert_true(is_reported(2, argv, "log-interval"));
    assert_true(is_reported(1, argv, "clip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_used),
        cmocka_unit_test(test_values_are_parsed),
        cmocka_unit_test(test_SGD_has_its_own_learning_rate),
        cmocka_unit_test(test_underscores_in_names_are_accepted),
        cmocka_unit_test(test_alternative_names_are_accepted),
        cmocka_unit_test(test_bad_numbers_are_rejected),
        cmocka_unit_test(test_bad_texts_are_rejected),
        cmocka_unit_test(test_contradictory_options_are_rejected),
        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_help_lists_all_options),
        cmocka_unit_test(test_changed_options_are_reported),
        cmocka_unit_test(test_a_default_without_a_number_is_not_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
