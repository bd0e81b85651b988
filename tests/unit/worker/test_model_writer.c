/* model_writer: a model comes out in the files, with the names and the element types it came in
 * with; a large single file is cut; the index says so; what fails leaves nothing. */
#include "worker/model_writer.h"

#include "common/safetensors.h"
#include "tests/lib/model_folder.h"

#include <dirent.h>

static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};

static float value(int64_t row, int64_t element)
{
    return (float)(row % 32) + 0.25f * (float)(element % 8); /* exact in all three types */
}

/* A base in `files` files; tensor i lies in file i mod files, with a type of its own. */
static void make_base(struct model_folder *base, const struct model_shape *shape, int files)
{
    CLEANUP(json_unref) json_t *map = json_object();
    for (int file = 0; file < files; file++) {
        struct safetensors_writer *writer = NULL;
        char name[40];
        (void)snprintf(name, sizeof name, files > 1 ? "part-%c.safetensors" : "model.safetensors",
                       'a' + file);
        CLEANUP(mem_free_ptr) char *path = io_join(base->dir, name);
        OK(base, safetensors_writer_new(path, &writer, &base->err));
        for (int64_t i = file; i < shape->row_count; i += files) {
            const struct model_shape_row *row = &shape->rows[i];
            const int64_t dims[2] = {row->rows, row->cols};
            json_object_set_new(map, row->name, json_string(name));
            OK(base, safetensors_writer_declare(writer, row->name, dtypes[i % 3], row->dims, dims,
                                                &base->err));
        }
        for (int64_t i = file; i < shape->row_count; i += files)
            for (int64_t at = 0; at < shape->rows[i].elements; at++) {
                float v = value(i, at);
                OK(base, safetensors_writer_put_f32(writer, &v, 1, &base->err));
            }
        OK(base, safetensors_writer_commit(writer, &base->err));
        safetensors_writer_free(writer);
    }
    CLEANUP(mem_free_ptr) char *path = io_join(base->dir, "model.safetensors.index.json");
    CLEANUP(json_unref) json_t *index = json_pack("{s:O}", "weight_map", map);
    if (files > 1)
        OK(base, json_write_file(path, index, 0644, &base->err));
}

static int write_model(struct model_folder *base, const struct model_shape *shape, int64_t limit,
                       const char *out, struct err *err)
{
    struct model_writer *writer = NULL;
    int rc = model_writer_new(base->dir, shape, limit, out, &writer, err);
    for (int64_t i = 0; rc == 0 && i < shape->row_count; i++)
        for (int64_t at = 0; rc == 0 && at < shape->rows[i].elements; at++) {
            float v = value(i, at) + 1;
            rc = model_writer_put(writer, &shape->rows[i], &v, 1, err);
        }
    if (rc == 0)
        rc = model_writer_commit(writer, err);
    if (writer != NULL)
        model_writer_free(writer);
    return rc;
}

static int count_files(const char *dir)
{
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    int count = 0;
    while (readdir(stream) != NULL)
        count++;
    (void)closedir(stream);
    return count - 2; /* . and .. */
}

/* What was written, and in which of `files` files; -1: the base's number of files. */
static void check(const char *out, const struct model_shape *shape, int files)
{
    struct err err = {0};
    struct safetensors *st = NULL;
    int64_t bytes = 0;
    MUST_WORK(safetensors_open_dir(out, &st, &err), &err);
    assert_int_equal(safetensors_files(st), files);
    assert_int_equal(safetensors_count(st), shape->row_count);
    for (int64_t i = 0; i < shape->row_count; i++) {
        const struct model_shape_row *row = &shape->rows[i];
        const struct safetensors_entry *entry = safetensors_find(st, row->name);
        CLEANUP(mem_free_ptr) float *got = mem_new((size_t)row->elements, sizeof *got);
        assert_true(entry != NULL && entry->dtype == dtypes[i % 3] && entry->dims == row->dims);
        assert_int_equal(safetensors_read_f32(st, entry, 0, row->elements, got, &err), 0);
        for (int64_t at = 0; at < row->elements; at++)
            assert_true(got[at] == value(i, at) + 1);
        bytes += entry->bytes;
    }
    safetensors_free(st);
    assert_int_equal(count_files(out), files > 1 ? files + 1 : 1);
    if (files == 1)
        return;
    CLEANUP(json_unref) json_t *index = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(out, "model.safetensors.index.json");
    assert_int_equal(json_parse_file(path, 1 << 20, &index, &err), 0);
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    assert_int_equal(json_integer_value(total), bytes);
    assert_int_equal(json_object_size(json_object_get(index, "weight_map")), shape->row_count);
}

struct scene {
    struct model_folder base;
    struct model_shape shape;
    char *out;
};

static void scene_open(struct scene *scene, int files)
{
    *scene = (struct scene){.out = NULL};
    model_folder_open(&scene->base, &model_folder_config, NULL);
    CLEANUP(mem_free_ptr) char *weights = io_join(scene->base.dir, "model.safetensors");
    OK(&scene->base, io_remove_tree(weights, &scene->base.err));
    OK(&scene->base, model_shape_build(&model_folder_config, &scene->shape, &scene->base.err));
    make_base(&scene->base, &scene->shape, files);
    scene->out = io_join(scene->base.dir, "out");
    OK(&scene->base, io_make_dirs(scene->out, 0755, &scene->base.err));
}

static void scene_close(struct scene *scene)
{
    mem_free(scene->out);
    model_shape_done(&scene->shape);
    model_folder_close(&scene->base);
    assert_int_equal(mem_live(), 0);
}

static void test_layout_of_the_base(void **state)
{
    struct scene scene;
    for (int files = 1; files <= 3; files++) {
        scene_open(&scene, files);
        struct err *err = &scene.base.err;
        OK(&scene.base, write_model(&scene.base, &scene.shape, 1 << 30, scene.out, err));
        check(scene.out, &scene.shape, files);
        char *first = io_join(scene.out, "part-a.safetensors");
        assert_int_equal(io_exists(first), files > 1);
        mem_free(first);
        scene_close(&scene);
    }
}

/* A tensor larger than the limit stands alone in a file; names count from 1. */
static void test_cut(void **state)
{
    struct scene scene;
    scene_open(&scene, 1);
    struct err *err = &scene.base.err;
    OK(&scene.base, write_model(&scene.base, &scene.shape, 2000, scene.out, err));
    int64_t filled = 0, files = 1;
    for (int64_t i = 0; i < scene.shape.row_count; i++) {
        int64_t bytes = scene.shape.rows[i].elements * (int64_t)dtype_bytes(dtypes[i % 3]);
        if (filled > 0 && filled + bytes > 2000) {
            files++;
            filled = 0;
        }
        filled += bytes;
    }
    assert_true(files > 3);
    check(scene.out, &scene.shape, (int)files);
    char name[40];
    (void)snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", (int)files, (int)files);
    char *last = io_join(scene.out, name);
    assert_true(io_exists(last));
    mem_free(last);
    scene_close(&scene);
}

static void test_faults(void **state)
{
    struct scene scene;
    scene_open(&scene, 2);
    for (int memory = 0; memory < 2; memory++) {
        int64_t blocks = mem_live(), faults = 0;
        int rc = -1;
        for (; rc != 0; faults++) {
            struct err err = {0};
            (memory ? mem_fault_after : io_fault_after)(faults + 1);
            rc = write_model(&scene.base, &scene.shape, 2000, scene.out, &err);
            mem_fault_after(0);
            io_fault_after(0);
            assert_int_equal(mem_live(), blocks);
            assert_true(rc == 0 || rc == (memory ? -ERR_NOMEM : -ERR_NO_SPACE));
            if (rc != 0)
                assert_true(count_files(scene.out) <= 3); /* whole files, no temporary ones */
            OK(&scene.base, io_remove_tree(scene.out, &err));
            OK(&scene.base, io_make_dirs(scene.out, 0755, &err));
        }
        assert_true(faults > 8);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_of_the_base),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
